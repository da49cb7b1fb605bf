"""Owners: rules in their order, assignments, and what pages, REST and filters show of them."""

from __future__ import annotations

from itertools import product
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse

from arrester.controlplane import actions, models, queries
from arrester.controlplane.access.roles import Role
from arrester.domain.errors import InvalidValue
from arrester.domain.state.error_groups import NO_OWNER, GroupAct, GroupRequest
from tests.dashboard.accounts import person
from tests.dashboard.story import NA, TYPO, Story, failure

HTMX = {"HX-Request": "true"}
PLACE = ["flights", TYPO.fingerprint]
#: Patterns and names with characters that LIKE, regular expressions or JSON treat in another way.
STAGES = ("deserialize", "process:validate", "process:a_b", "process:aXb", "process:50%", "a.b")
PATTERNS = ("", "*", "process:*", "process:a_b", "*%", "a.b", "*:*a*")
HOSTILE = 'O"Brien \\ "assignee":"ana"'


def rule(owner: str, **patterns: Any) -> None:
    actions.save_owner_rule(None, actions.OwnerRuleForm(owner=owner, **patterns), actor="ada")


def assign(owner: str | None, fingerprint: str = TYPO.fingerprint) -> None:
    requested = GroupRequest(
        id=uuid4(), act=GroupAct.ASSIGN, fingerprint=fingerprint, actor="ana", assignee=owner
    )
    actions.act_on_group("flights", requested)


def shown(client: Client, url: str, **query: str) -> str:
    response = client.get(url, query)
    assert response.status_code == 200, response.content.decode()[:500]
    return response.content.decode()


def groups(owner: str | None = None) -> set[str]:
    return {each.fingerprint for each in queries.groups(queries.GroupFilter(owner=owner)).rows}


def tasks(owner: str | None = None) -> set[str]:
    found = queries.tasks(queries.TaskFilter(owner=owner)).rows
    return {each.id.digest for each in found}


def test_filters_find_what_the_rules_and_assignments_name(flights: Story) -> None:
    for number, stage in enumerate(STAGES):
        flights.pauses(f"task-{number}", cause=failure(stage, "a.Wrong", f"the {HOSTILE} is wrong"))
    assigned = failure("a", "a.Assigned", "wrong")
    flights.pauses("assigned", cause=assigned)
    assign(HOSTILE, assigned.fingerprint)
    for number, (pipeline, stage) in enumerate(product(("", "del*", "other"), PATTERNS)):
        rule(f"owner-{number}", application="f*s", pipeline=pipeline, stage=stage, place=1)
    while True:
        owners, every = queries.owners(), queries.groups().rows
        names = {each.owner for each in owners.rules} | {HOSTILE, "ana", NO_OWNER}
        states = queries.tasks(queries.TaskFilter()).rows
        of_tasks = queries.owners_of_tasks(states)
        for name in names:
            wanted = None if name == NO_OWNER else name
            assert groups(name) == {
                each.fingerprint for each in every if owners.of_group(each) == wanted
            }, name
            assert tasks(name) == {
                each.id.digest for each in states if of_tasks[each.id.digest] == wanted
            }, name
        if not owners.rules:
            break
        # With less rules the later ones decide.
        for each in owners.rules[: len(owners.rules) // 3 + 1]:
            actions.delete_owner_rule(each.id, actor="ada")
    assert groups(NO_OWNER) == groups() - {assigned.fingerprint}
    assert queries.known_owners() == (HOSTILE,)


def test_the_first_rule_counts_and_rules_are_moved(flights: Story, operator: Client) -> None:
    flights.pauses("JFK")
    rule("everyone")
    first = {"owner": "checks", "application": "flights", "stage": "process:*", "place": "1"}
    assert operator.post(reverse("save-owner-rule"), first, headers=HTMX).status_code == 200
    assert str(queries.owners().rules[0]) == "1. application flights, stage process:*: checks"
    page = shown(operator, reverse("error", args=PLACE))
    assert '<b class="break">checks</b>' in page and "owner rule 1" in page
    checks = queries.owners().rules[0]
    moved = first | {"rule": str(checks.id), "place": "2"}
    assert operator.post(reverse("save-owner-rule"), moved, headers=HTMX).status_code == 200
    assert [each.owner for each in queries.owners().rules] == ["everyone", "checks"]
    assert [each.place for each in queries.owners().rules] == [1, 2]
    assert "everyone" in shown(operator, reverse("error", args=PLACE))
    delete = reverse("delete-owner-rule", args=[queries.owners().rules[0].id])
    assert operator.post(delete, headers=HTMX).status_code == 200
    assert [(each.place, each.owner) for each in queries.owners().rules] == [(1, "checks")]
    details = models.AuditEntry.objects.filter(act="OWNER_RULE_SAVED").order_by("-id")
    assert details[0].detail == (
        "2. application flights, stage process:*: checks;"
        " before: 1. application flights, stage process:*: checks"
    )
    audit = shown(operator, reverse("audit"), kind="owners")
    assert "Owner rule deleted" in audit and "1. everything: everyone" in audit


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("application", "UPPER"),
        ("pipeline", "a b"),
        ("stage", "a b"),
        ("stage", "*a*a*a*a*"),
        ("owner", "none"),
        ("place", "first"),
    ],
)
def test_an_invalid_rule_is_refused_in_its_dialog(
    operator: Client, flights: Story, field: str, value: str
) -> None:
    form = {"owner": "ben", "place": "1", field: value}
    refused = operator.post(reverse("save-owner-rule"), form, headers=HTMX)
    assert refused.status_code == 400 and field in refused.content.decode()
    assert queries.owners().rules == ()


def test_a_group_is_assigned_and_left_to_the_rules_again(
    flights: Story, operator: Client, viewer: Client
) -> None:
    task = flights.pauses("JFK")
    url, page = reverse("assign-group", args=PLACE), reverse("error", args=PLACE)
    assert 'Owner: none; no <a href="/owners">owner rule</a> matches' in shown(viewer, page)
    for form, owner in (({"me": "1"}, "ana (you)"), ({"assignee": "checks"}, "checks")):
        response = operator.post(url, {"id": str(uuid4())} | form, headers=HTMX)
        assert response.status_code == 200
        name = owner.partition(" ")[0]
        assert f'<b class="break">{name}</b>{owner[len(name) :]}' in response.content.decode()
    assert 'value="checks"' in shown(operator, reverse("assign-dialog", args=PLACE))
    assert "assigned" in shown(viewer, page)
    history = shown(viewer, page, tab="notes")
    assert "Error group assigned" in history and "to checks" in history
    assert "Error group assigned" in shown(viewer, reverse("audit"), kind="errors")
    last = str(queries.log_positions()["flights"])
    assert "Assigned to" in shown(viewer, page, as_of=f"@{last}")
    assert "checks" in shown(viewer, reverse("task", args=[task.digest]))
    for listed in ("errors", "tasks"):
        assert 'owner=checks">checks</a>' in shown(viewer, reverse(listed))
        assert "row-link" in shown(viewer, reverse(listed), owner="checks")
        assert "row-link" not in shown(viewer, reverse(listed), owner="ana")
    refused = operator.post(url, {"id": str(uuid4()), "assignee": "none"}, headers=HTMX)
    assert refused.status_code == 400 and "a name other than none" in refused.content.decode()
    unassigned = operator.post(url, {"id": str(uuid4()), "assignee": ""}, headers=HTMX)
    assert "Owner: none" in unassigned.content.decode()
    assert viewer.post(url, {"id": str(uuid4()), "me": "1"}).status_code == 403


def test_several_groups_are_assigned_at_once(flights: Story, operator: Client) -> None:
    flights.pauses("JFK")
    flights.skips("EWR", 2)
    selected = [f"flights/{each}" for each in (NA.fingerprint, TYPO.fingerprint)]
    dialog = operator.get(reverse("groups-dialog"), {"act": "ASSIGN", "group": selected})
    assert 'name="assignee"' in dialog.content.decode()
    form = {"id": str(uuid4()), "act": "ASSIGN", "group": selected, "assignee": "checks"}
    done = operator.post(reverse("act-on-groups"), form, headers=HTMX).content.decode()
    assert "2 groups assigned." in done
    assert groups("checks") == {NA.fingerprint, TYPO.fingerprint}
    wrong = operator.post(reverse("act-on-groups"), form | {"assignee": "none"}, headers=HTMX)
    assert wrong.status_code == 400


def test_rest_has_owner_and_assignee(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK")
    rule("checks", stage="process:*")
    place = f"/api/v1/errors/flights/{TYPO.fingerprint}"
    found = operator.get(place).json()
    assert (found["owner"], found["assignee"]) == ("checks", None)
    act = {"act": "ASSIGN", "assignee": "ben"}
    found = operator.post(f"{place}/acts", act, "application/json").json()
    assert (found["owner"], found["assignee"]) == ("ben", "ben")
    for path in ("errors", "tasks"):
        assert len(operator.get(f"/api/v1/{path}?owner=ben").json()["results"]) == 1
        assert operator.get(f"/api/v1/{path}?owner=checks").json()["results"] == []
        past = operator.get(f"/api/v1/{path}?owner=ben&application=flights&as_of=1s")
        assert past.status_code == 400
    assert operator.get(f"/api/v1/tasks/{task.digest}").json()["owner"] == "ben"
    (held,) = operator.get("/api/v1/held").json()["results"]
    assert held["owner"] == "ben"
    flights.skips("EWR", 2)
    rule("parsers", stage="deserialize")
    waiting = operator.get("/api/v1/dead-letters").json()["results"]
    assert {each["owner"] for each in waiting} == {"parsers"}
    (one, *_) = waiting
    page = shown(operator, reverse("dead-letter", args=["flights", one["id"]]))
    assert "parsers" in page
    for view in ("records", "causes"):
        assert "owner parsers" in shown(operator, reverse("dead-letters"), view=view)
    wrong = operator.post(f"{place}/acts", {"act": "RESOLVE", "assignee": "x"}, "application/json")
    assert (wrong.status_code, wrong.json()["param"]) == (400, "assignee")
    back = operator.post(f"{place}/acts", {"act": "ASSIGN"}, "application/json").json()
    assert (back["owner"], back["assignee"]) == ("checks", None)


def test_only_operators_of_all_applications_change_rules(flights: Story, viewer: Client) -> None:
    flights.pauses("JFK")
    rule("checks", application="fl*")
    rule("others", application="orders")
    confined = person("oli", roles={"flights": Role.ADMIN})
    for client in (viewer, confined):
        form = {"owner": "me", "place": "1"}
        assert client.post(reverse("save-owner-rule"), form).status_code == 403
        assert client.get(reverse("owner-rule-dialog")).status_code == 403
        page = shown(client, reverse("owners"))
        assert "checks" in page and "disabled" in page
    # A confined person sees the rules about its applications, and their owners.
    assert "others" in shown(viewer, reverse("owners"))
    assert "others" not in shown(confined, reverse("owners"))
    assert "checks" in shown(confined, reverse("error", args=PLACE))


def filter_form(name: str, query: str, **more: str) -> dict[str, str]:
    return {"page": "errors", "name": name, "query": query} | more


def test_filters_are_saved_shared_and_deleted(
    flights: Story, operator: Client, viewer: Client
) -> None:
    flights.pauses("JFK")
    save, errors = reverse("save-filter"), reverse("errors")
    confined = person("oli", roles={"flights": Role.OPERATOR})
    query = "state=all&application=flights&unknown=1&after=x&text="
    saved = operator.post(save, filter_form("own", query), headers=HTMX)
    assert saved.headers["HX-Redirect"] == f"{errors}?state=all&application=flights"
    operator.post(save, filter_form("every", "state=all", shared="1"))
    operator.post(save, filter_form("of flights", query, shared="1"))
    names = {
        client: {
            name
            for name in ("own", "every", "of flights")
            if f">{name} " in shown(client, errors) or f">{name}<" in shown(client, errors)
        }
        for client in (operator, viewer, confined)
    }
    assert names == {
        operator: {"own", "every", "of flights"},
        viewer: {"every", "of flights"},
        confined: {"of flights"},
    }
    # A confined person shares filters of its applications only, and saves any for itself.
    Story(application="orders").starts()
    for query in ("state=all", "application=orders", "application=unknown"):
        refused = confined.post(save, filter_form("all", query, shared="1"), headers=HTMX)
        assert refused.status_code == 400
        assert "a filter of one application that you may see" in refused.content.decode()
    confined.post(save, filter_form("all mine", "state=all"))
    assert "all mine" in shown(confined, errors) and "all mine" not in shown(operator, errors)
    assert "Apply a filter" in shown(operator, reverse("filter-dialog"), page="errors")
    dialog = shown(operator, reverse("filter-dialog"), page="errors", query="text=x")
    assert "of flights" in dialog and "<dt>Text</dt>" in dialog
    (own,) = models.SavedFilter.objects.filter(name="own")
    gone = viewer.post(save, {"page": "errors", "delete": str(own.id)})
    assert gone.status_code == 404
    operator.post(save, {"page": "errors", "delete": str(own.id)})
    assert ">own<" not in shown(operator, errors)


@pytest.mark.parametrize(("name", "query"), [("", "state=all"), ("x", ""), ("x" * 51, "text=x")])
def test_a_filter_needs_a_name_and_a_value(
    flights: Story, operator: Client, name: str, query: str
) -> None:
    refused = operator.post(reverse("save-filter"), filter_form(name, query), headers=HTMX)
    assert refused.status_code == 400 and "is not allowed" in refused.content.decode()
    assert not models.SavedFilter.objects.exists()


def test_an_account_saves_some_filters_of_a_list(operator: Client, db: None) -> None:
    for number in range(50):
        actions.save_filter("ana", "errors", f"f{number}", "text=x")
    actions.save_filter("ana", "errors", "f0", "text=y")
    with pytest.raises(InvalidValue, match="at most 50 filters"):
        actions.save_filter("ana", "errors", "one more", "text=x")

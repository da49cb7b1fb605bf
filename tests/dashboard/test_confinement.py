"""Every page and endpoint, for people and tokens that may see one application of two."""

from __future__ import annotations

import io
import re
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast
from urllib.request import Request, urlopen
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.http import StreamingHttpResponse
from django.test import Client
from django.urls import reverse
from redis import Redis

from arrester.controlplane import actions, embedded, models, queries
from arrester.controlplane.access.login_attempts import PER_NAME_AND_ADDRESS
from arrester.controlplane.access.roles import Role, TokenScope
from arrester.controlplane.alerts.text import test_message as message_text
from arrester.controlplane.history import audit_verification
from arrester.controlplane.redis import redis_client
from arrester.dashboard import permissions
from arrester.dashboard.pages import exports
from arrester.dashboard.pages.errors import TABS as ERROR_TABS
from arrester.dashboard.pages.exports import EXPORTS, FORMS
from arrester.domain.identity.uuids import uuid7
from arrester.domain.state.error_groups import GroupAct, GroupRequest
from tests.dashboard.accounts import PASSWORD, logged_in, make_user, person
from tests.dashboard.every_action import done, user_actions
from tests.dashboard.pages.test_query_counts import asked, urls
from tests.dashboard.story import Story, failure

#: The same of the one that is seen.
SEEN = "apple"
#: Part of each name and text of the application that is not seen, and of no other text.
HIDDEN = "zebra"
#: An application that does not exist, with a name of the same length.
UNKNOWN = "quokk"


class Side(NamedTuple):
    """An application with data of every kind, and the URLs about it."""

    story: Story
    task: str
    urls: Mapping[str, str]


def side(word: str) -> Side:
    """Create an application all of whose names and texts contain a word."""
    story = Story(application=word, pipeline=f"{word}-pipeline", checkpoint=str(uuid4()))
    story.starts(host=f"{word}-host")
    cause = failure(f"process:{word}", f"{word}.Wrong", f"the {word} is wrong", f"{word}.py:1")
    task = story.pauses(f"{word}-key", cause=cause, record={"of": word}, stack=word, held=3)
    story.skips(f"{word}-skipped", 3)
    story.flows(ago=2, records_in=7, durations={"total:9": 1}, backlog=3)
    command = actions.resume_task(task.digest, actor=f"{word}-ana", reason=word).id
    story.send(b"not a batch of " + word.encode())
    actions.note_on_task(task, actor=f"{word}-ana", text=f"a note on the {word}")
    actions.note_on_group(word, cause.fingerprint, actor=f"{word}-ana", text=word)
    assign = GroupRequest(
        id=uuid4(), act=GroupAct.ASSIGN, fingerprint=cause.fingerprint, actor="ada",
        assignee=f"{word}-team",
    )  # fmt: skip
    actions.act_on_group(word, assign)
    rule = actions.OwnerRuleForm(owner=f"{word}-owner", application=f"{word[:-1]}*")
    actions.save_owner_rule(None, rule, actor="ada")
    make_user(f"{word}-eve", "viewer")
    actions.save_filter(
        f"{word}-eve", "tasks", f"{word}-filter", f"application={word}", application=word,
        shared=True,
    )  # fmt: skip
    actions.save_filter(f"{word}-eve", "tasks", f"{word}-2", "key=a", shared=True)
    actions.add_agent_credential(word, actor=f"{word}-ada")
    _alert(word)
    found = dict(urls(story, task.digest, command))
    error = [word, cause.fingerprint]
    found |= {
        "error": reverse("error", args=error),
        **{f"error?tab={tab}": f"{reverse('error', args=error)}?tab={tab}" for tab in ERROR_TABS},
        "api-error": reverse("api-error", args=error),
        "api-group-history": reverse("api-group-history", args=error),
        "api-error-fields": reverse("api-error-fields", args=error),
        "mute-dialog": reverse("mute-dialog", args=error),
        "assign-dialog": reverse("assign-dialog", args=error),
        "groups-dialog": f"{reverse('groups-dialog')}?act=RESOLVE&group={'/'.join(error)}",
        "application-as-of": f"{reverse('application', args=[word])}?as_of=@9",
        "task-as-of": f"{reverse('task', args=[task.digest])}?as_of=@9",
        "metrics": reverse("metrics"),
        "api-audit-export": reverse("api-audit-export"),
        "api-feed-all": f"{reverse('api-feed')}?last=100",
        "api-feed-one": f"{reverse('api-feed')}?last=100&application={word}",
        "api-feed-ndjson": f"{reverse('api-feed-ndjson')}?follow=false",
        "api-feed-sse": f"{reverse('api-feed-sse')}?follow=false&application={word}",
        "api-feed-parquet": reverse("api-feed-parquet"),
        "search-hidden": f"{reverse('search')}?q={HIDDEN[:3]}",
        "search-records": f"{reverse('search')}?q=of:{word}",
        "api-records-found": f"{reverse('api-records')}?q={word}",
        "resume-many-selected": f"{reverse('resume-many-dialog')}?task={task.digest}",
        "dismiss-many-selected": f"{reverse('dismiss-many-dialog')}?task={task.digest}",
        **{
            f"{what}.{form}": f"{reverse('export', args=[what, form])}?task={task.digest}"
            if what == "history"
            else reverse("export", args=[what, form])
            for what in EXPORTS
            for form in FORMS
        },
    }
    return Side(story=story, task=task.digest, urls=found)


def _alert(word: str) -> None:
    channel = models.AlertChannel.objects.create(
        name=f"{word}-channel", service="webhook", shown_address=word, secret=b"",
        created_at=datetime.now(UTC),
    )  # fmt: skip
    models.AlertRule.objects.create(
        name=f"{word}-rule", channel=channel, application=word, created_at=datetime.now(UTC)
    )
    now = datetime.now(UTC)
    alert = models.Alert.objects.create(
        cause="TASKS_PAUSED", critical=True, application=word, subject=word, title=word, path="/",
        since=now, opened_at=now,
    )  # fmt: skip
    models.AlertMessage.objects.create(
        id=uuid7(now), channel=channel, channel_name=word, kind="FIRED", alerts=[alert.id],
        applications=[word], text=message_text(word, word).encode(), created_at=now, status="SENT",
    )  # fmt: skip
    models.AlertLimits.objects.create(application=word, held_minutes=7)
    models.LogGap.objects.create(application=word, first=1, last=2, noticed_at=now)
    models.RetentionRefusal.objects.create(application=word, since=now, reason=word)


@pytest.fixture
def sides(db: None, redis: Redis) -> tuple[Side, Side]:
    """Return the application that is seen, and the one that is not."""
    return side(SEEN), side(HIDDEN)


def token_client(name: str, group: str, applications: list[str]) -> Client:
    """Return a client with a token, of a new account, that is limited to some applications."""
    make_user(name, group)
    text = actions.create_token(
        name, "limited", actor=name, scope=TokenScope.OPERATE, applications=applications
    ).text
    return Client(headers={"Authorization": f"Bearer {text}"})


async def _chunks(response: StreamingHttpResponse) -> bytes:
    chunks = cast(AsyncIterator[bytes], response.streaming_content)
    return b"".join([chunk async for chunk in chunks])


def ask(client: Client, url: str) -> tuple[int, str]:
    """Return status and body of a page, a list, an export or a dialog."""
    response: Any = client.get(url)
    if isinstance(response, StreamingHttpResponse):
        content = async_to_sync(_chunks)(response)
        if response["Content-Type"] == "application/vnd.apache.parquet":
            body = str(pq.read_table(io.BytesIO(content)).to_pylist())
        else:
            body = content.decode()
    else:
        body = response.content.decode()
    assert response.status_code < 500, (url, body)
    return response.status_code, body


#: What is about the server, and what needs another role than that of a viewer.
SERVER = {"alert-settings", "api-audit-export", "api-installation", "limits-dialog", "rule-dialog",
    "api-event-subscriptions", "subscription-dialog",
    "owner-rule-dialog",
}  # fmt: skip


def test_nothing_of_another_application_is_in_any_response(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, hidden = sides
    # Each export is read in several parts.
    monkeypatch.setattr(exports, "ROWS_PER_PAGE", 1)
    clients = {
        Role.ADMIN: person("ada", roles={SEEN: Role.ADMIN}),
        "token": token_client("tom", "admin", [SEEN]),
    }
    for name, client in clients.items():
        answers = {page: ask(client, url) for page, url in seen.urls.items()}
        assert [page for page, (_, body) in answers.items() if HIDDEN in body] == [], name
        ok = {page for page, (status, _) in answers.items() if status == 200}
        if name is Role.ADMIN:
            # Not vacuous: everything of the own application is shown.
            assert answers.keys() - ok == SERVER
            own = [page for page in ok if SEEN in answers[page][1]]
            assert len(own) > 60, sorted(ok - {*own})
            assert "arrester_up" not in answers["metrics"][1]
        # What has an id does not exist; the next test is about names in URLs.
        about = {page: url for page, url in hidden.urls.items() if url != seen.urls.get(page)}
        for page, url in about.items():
            if HIDDEN not in url:
                status, body = ask(client, url)
                assert HIDDEN not in body and status in (200, 302, 403, 404), (name, page)
    everything = person("gus", "viewer", roles={})
    assert HIDDEN in ask(everything, reverse("applications"))[1]
    assert HIDDEN in ask(everything, reverse("metrics"))[1]


def test_a_confined_person_costs_one_statement(sides: tuple[Side, Side]) -> None:
    confined, other = person("vic", roles={SEEN: Role.VIEWER}), person("gus", "viewer", roles={})
    names = ("applications", "tasks", "error?tab=why", "api-status")
    pages = {name: sides[0].urls[name] for name in names}
    more = asked(confined, pages, sides[0].story)
    # Django's own connection is kept, so its reset is counted, too.
    assert {name: count - 2 for name, count in more.items()} == asked(other, pages, sides[0].story)


@pytest.mark.e2e
def test_concurrent_requests_do_not_share_a_confinement(
    server: str, fresh_database: embedded.Urls, redis: Redis
) -> None:
    names = (SEEN, HIDDEN)
    for name in names:
        Story(application=name).starts()
    make_user("ada", "admin")
    tokens = {
        seen: actions.create_token("ada", "-".join(seen), actor="ada", applications=seen).text
        for seen in ((SEEN,), (HIDDEN,), names)
    }
    tokens[names] = actions.create_token("ada", "all", actor="ada").text
    vic = person("vic", roles={SEEN: Role.VIEWER}).cookies
    requests = [
        (path, {"Authorization": f"Bearer {token}"}, set(seen))
        for path in ("/api/v1/status", "/metrics", "/api/v1/feed?last=50")
        for seen, token in tokens.items()
    ]
    requests += [
        (path, {"Cookie": vic.output(header="", attrs=[])}, {SEEN})
        for path in ("/", "/applications")
    ]

    def shown(path: str, headers: dict[str, str], expected: set[str]) -> bool:
        with urlopen(Request(f"{server}{path}", headers=headers)) as response:
            body = response.read().decode()
        return {name for name in names if name in body} == expected

    with ThreadPoolExecutor(12) as pool:
        assert all(pool.map(lambda each: shown(*each), requests * 10))


def test_an_application_that_may_not_be_seen_is_answered_like_an_unknown_one(
    sides: tuple[Side, Side],
) -> None:
    _, hidden = sides
    client = person("ada", roles={SEEN: Role.ADMIN})
    for page, url in hidden.urls.items():
        if HIDDEN not in url:
            continue
        status, body = ask(client, url)
        without_date = _without_tokens(body).replace(HIDDEN, UNKNOWN)
        other = ask(client, url.replace(HIDDEN, UNKNOWN))
        assert (status, without_date) == (other[0], _without_tokens(other[1])), page


def _without_tokens(body: str) -> str:
    """Return a body without values that differ between two requests: CSRF tokens, ids, times."""
    return re.sub(r'value="[^"]{36,}"|[0-9]{2}:[0-9]{2}:[0-9]{2}[^" <]*|"id":"[^"]*"', "", body)


def test_acts_on_the_own_application_are_performed(flights: Story) -> None:
    everything = [each for each in user_actions(flights) if each.least is Role.OPERATOR]
    names = [*queries.log_positions(), "test"]
    client = person("oli", roles=dict.fromkeys(names, Role.OPERATOR))
    for action in everything:
        if action.name in (
            "send-alert-again",
            "test-error",
            "save-owner-rule",
            "delete-owner-rule",
        ):
            # A message and rules about no application; a test error adds no entry.
            continue
        before = done()
        if action.rest is None:
            client.post(action.url, action.form)
        else:
            action.ask(client)
        assert done() > before, action


def test_one_refused_application_refuses_the_whole_request(sides: tuple[Side, Side]) -> None:
    seen, other = sides
    client = person("oli", roles={SEEN: Role.OPERATOR, HIDDEN: Role.VIEWER})
    tasks = {"tasks": [seen.task, other.task], "reason": "so it is"}
    keys = [each.urls["api-error"].split("/")[-1] for each in sides]
    groups = [
        {"application": each.story.application, "fingerprint": key}
        for each, key in zip(sides, keys, strict=True)
    ]
    before = done()
    refused = [
        client.post("/api/v1/dismiss", tasks, content_type="application/json"),
        client.post(
            "/api/v1/errors/acts", {"act": "RESOLVE", "groups": groups}, "application/json"
        ),
    ]
    for response in refused:
        assert response.status_code == 403
        detail = f"requires the role operator on the application {HIDDEN!r}"
        assert response.json()["detail"] == detail
    assert done() == before


def test_a_list_has_no_selection_where_no_row_may_be_acted_on(sides: tuple[Side, Side]) -> None:
    client = person("ana", "viewer", roles={SEEN: Role.OPERATOR})
    for page in ("tasks", "errors", "dead-letters"):
        for application, selectable in ((SEEN, True), (HIDDEN, False)):
            shown = client.get(f"{reverse(page)}?application={application}").content.decode()
            assert "row-link" in shown
            assert ('id="selection"' in shown) == selectable, (page, application)


def test_admins_of_an_application_manage_its_roles_and_agents(sides: tuple[Side, Side]) -> None:
    make_user("new")
    client = person("ada", roles={SEEN: Role.ADMIN})
    form = {"name": "new", "application": SEEN, "role": "viewer"}
    page = client.post(reverse("grant-role"), form)
    assert page.status_code == 302
    user = User.objects.get(username="new")
    assert access_of(user) == {SEEN: Role.VIEWER}
    shown = client.get(reverse("settings")).content.decode()
    assert f'<option value="{SEEN}">' in shown and "no events yet" not in shown
    assert client.post(reverse("grant-role"), form | {"application": HIDDEN}).status_code == 404
    assert client.post(reverse("create-account"), {"name": "x", "role": "none"}).status_code == 403
    assert client.post(reverse("withdraw-role"), form).status_code == 302
    assert access_of(user) == {}
    assert logged_in(user).get("/").status_code == 403
    entries = models.AuditEntry.objects.filter(about="new", act="ROLE_CHANGED").order_by("id")
    assert [each.detail for each in entries] == [f"viewer on {SEEN}", f"none on {SEEN}"]
    added = client.post("/api/v1/agents", {"application": SEEN}, content_type="application/json")
    assert added.status_code == 201
    # The users of the other applications in Redis stay.
    assert {each["application"] for each in client.get("/api/v1/agents").json()["results"]} == {
        SEEN
    }
    assert f"arrester-agent-{HIDDEN}" in " ".join(map(str, redis_client.client().acl_list()))


def access_of(user: User) -> Mapping[str, Role]:
    found = permissions.person(user)
    return {} if found is None else found.roles


def test_a_token_gives_what_account_scope_and_list_have_in_common(
    sides: tuple[Side, Side],
) -> None:
    seen, other = sides
    operator = token_client("oli", "operator", [SEEN])
    command = {"kind": "RESUME_TASK", "task": seen.task}
    assert operator.get(f"/api/v1/tasks/{other.task}").status_code == 404
    assert operator.get(f"/api/v1/tasks/{seen.task}").status_code == 200
    viewer = token_client("vic", "viewer", [SEEN])
    assert viewer.post("/api/v1/commands", command, "application/json").status_code == 403
    status = operator.get("/api/v1/status").json()
    assert (status["role"], status["roles"]) == (None, {SEEN: "operator"})
    # It creates no token for more.
    for applications in (None, [HIDDEN], [SEEN, HIDDEN]):
        form = {"name": "more", "applications": applications}
        response = operator.post("/api/v1/tokens", form, "application/json")
        assert (response.status_code, response.json()["param"]) == (400, "applications")
    form = {"name": "same", "applications": [SEEN]}
    created = operator.post("/api/v1/tokens", form, "application/json")
    assert (created.status_code, created.json()["applications"]) == (201, [SEEN])
    grantless = token_client("eve", "operator", ["gone"])
    assert grantless.get("/api/v1/tasks").json()["results"] == []


def test_a_confined_person_has_own_tokens_and_an_own_password(sides: tuple[Side, Side]) -> None:
    client = person("vic", roles={SEEN: Role.VIEWER})
    made = client.post(reverse("create-token"), {"name": "ci", "scope": "read", "days": "7"})
    text = made.content.decode().split('id="token" tabindex="0">')[1].split("<")[0]
    bearer = Client(headers={"Authorization": f"Bearer {text}"})
    assert [each["application"] for each in bearer.get("/api/v1/alerts").json()["results"]] == [
        SEEN
    ]
    assert [each["name"] for each in client.get("/api/v1/tokens").json()["results"]] == ["ci"]
    change = {
        "old_password": PASSWORD,
        "new_password1": "a long new password 8",
        "new_password2": "a long new password 8",
    }
    assert client.post(reverse("password"), change).status_code == 200
    for _ in range(PER_NAME_AND_ADDRESS):
        actions.record_wrong_password("vic", "127.0.0.1")
    assert client.post(reverse("password"), change).status_code == 429
    assert audit_verification.verify().problem == ""

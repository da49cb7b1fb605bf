"""Alerts to owners: by mail to an account, to the channel of a team, and to no other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from redis import Redis

from arrester.controlplane import actions, models
from arrester.controlplane.access.roles import Role
from arrester.controlplane.alerts import configuration, owner_channels, routing
from arrester.controlplane.alerts.evaluation import RESOLVE_AFTER
from arrester.domain.errors import InvalidValue
from arrester.domain.state.error_groups import GroupAct, GroupRequest
from tests.controlplane.alerts.conftest import Clock
from tests.controlplane.alerts.receivers import Mailbox, Receiver
from tests.controlplane.alerts.test_alerts import paused, resumed, titles
from tests.histories import APPLICATION, FAILURE

SHORT = timedelta(seconds=5)


def account(name: str, role: Role | None = Role.OPERATOR) -> None:
    actions.create_account(name, role, actor="ada")
    owner_channels.subscribe(name, f"{name}@example.com")


def assign(owner: str | None) -> None:
    requested = GroupRequest(
        id=uuid4(), act=GroupAct.ASSIGN, fingerprint=FAILURE.fingerprint, actor="ada",
        assignee=owner,
    )  # fmt: skip
    actions.act_on_group(APPLICATION, requested)


def receivers(mailbox: Mailbox) -> list[str]:
    return [str(each["To"]) for each in mailbox.messages]


def test_alerts_are_mailed_to_the_owner_and_to_the_next_one(
    redis: Redis, clock: Clock, mailbox: Mailbox
) -> None:
    account("ana")
    account("ben")
    (rule,) = models.AlertRule.objects.all()
    assert (rule.name, rule.channel) == (owner_channels.RULE, None)
    paused(redis)
    clock.update()
    assert receivers(mailbox) == []
    form = actions.OwnerRuleForm(owner="ana", application=APPLICATION)
    actions.save_owner_rule(None, form, actor="ada")
    clock.update(after=SHORT)
    clock.update(after=SHORT)
    assert receivers(mailbox) == ["ana@example.com"]
    assert "task delays_JFK PAUSED" in mailbox.messages[0].get_content()
    assign("ben")
    clock.update(after=SHORT)
    clock.update(after=SHORT)
    assert receivers(mailbox) == ["ana@example.com", "ben@example.com"]
    assert routing.preview(rule, now=clock.now) != []
    # Without an owner that has a channel nothing is sent.
    assign("carl")
    clock.update(after=SHORT)
    assert len(mailbox.messages) == 2 and routing.preview(rule, now=clock.now) == []
    # The end is sent to those who were alerted.
    resumed(redis)
    clock.update(after=SHORT)
    clock.update(after=RESOLVE_AFTER)
    assert receivers(mailbox)[2:] == ["ana@example.com", "ben@example.com"]
    assert str(mailbox.messages[3]["Subject"]).startswith("Resolved: ")


def test_the_channel_of_a_team_has_its_name(
    redis: Redis, clock: Clock, receiver: Receiver, mailbox: Mailbox
) -> None:
    hook, _ = configuration.add_channel(receiver.url, "the team", actor="ada")
    other, _ = configuration.add_channel("ops@example.com", "ops", actor="ada")
    models.AlertRule.objects.all().delete()
    rule = configuration.save_rule(
        None, configuration.RuleForm(name="to owners", channel=None), actor="ada"
    )
    paused(redis)
    assign("the team")
    clock.update()
    assert titles(receiver) == ["flights: 1 task PAUSED, 1 new error"]
    assert receivers(mailbox) == []
    channels = [hook, other]
    assert owner_channels.receiving(channels, [rule]) == {hook.id}


@pytest.mark.parametrize("role", [None, Role.VIEWER])
def test_who_may_not_see_the_application_gets_no_mail(
    redis: Redis, clock: Clock, mailbox: Mailbox, role: Role | None
) -> None:
    account("ana", role)
    paused(redis)
    assign("ana")
    if role is not None:
        actions.deactivate_account("ana", actor="ada")
    clock.update()
    assert receivers(mailbox) == []
    if role is None:
        actions.grant_role("ana", APPLICATION, Role.VIEWER, actor="ada")
        clock.update(after=SHORT)
        assert receivers(mailbox) == ["ana@example.com"]


def test_a_deactivated_account_is_sent_nothing_that_waits_and_no_end(
    redis: Redis, clock: Clock, mailbox: Mailbox
) -> None:
    account("ana")
    paused(redis)
    assign("ana")
    clock.update()
    assert receivers(mailbox) == ["ana@example.com"]
    own = owner_channels.own_channel("ana")
    assert own is not None
    configuration.request_test(own.id, actor="ada")
    actions.deactivate_account("ana", actor="ada")
    resumed(redis)
    clock.update(after=SHORT)
    clock.update(after=RESOLVE_AFTER)
    assert len(mailbox.messages) == 1
    actions.activate_account("ana", actor="ada")
    assert owner_channels.own_channel("ana") is None


def test_an_account_changes_and_ends_its_own_channel(
    redis: Redis, clock: Clock, mailbox: Mailbox
) -> None:
    account("ana")
    owner_channels.subscribe("ana", "new@example.com")
    own = owner_channels.own_channel("ana")
    assert own is not None and own.shown_address == "new@example.com"
    with pytest.raises(InvalidValue, match="a mail address"):
        owner_channels.subscribe("ana", "https://example.com/hook")
    owner_channels.subscribe("ana", "")
    assert owner_channels.own_channel("ana") is None
    acts = models.AuditEntry.objects.filter(act__startswith="ALERT_").order_by("id")
    assert [(each.actor, each.act) for each in acts] == [
        ("ana", "ALERT_CHANNEL_ADDED"),
        ("ana", "ALERT_RULE_SAVED"),
        ("ana", "ALERT_CHANNEL_ADDED"),
        ("ana", "ALERT_CHANNEL_DELETED"),
    ]
    # The name of an account that a channel of admins has.
    models.AlertChannel.objects.create(
        name="ana", service="mail", shown_address="", secret=b"", created_at=datetime.now(UTC)
    )
    with pytest.raises(InvalidValue, match="channel"):
        owner_channels.subscribe("ana", "new@example.com")
    assert User.objects.filter(username="ana").exists()


def test_who_may_not_see_the_application_any_more_gets_no_end(
    redis: Redis, clock: Clock, mailbox: Mailbox
) -> None:
    account("ana", None)
    actions.grant_role("ana", APPLICATION, Role.VIEWER, actor="ada")
    paused(redis)
    assign("ana")
    clock.update()
    assert receivers(mailbox) == ["ana@example.com"]
    actions.withdraw_role("ana", APPLICATION, actor="ada")
    resumed(redis)
    clock.update(after=SHORT)
    clock.update(after=RESOLVE_AFTER)
    assert len(mailbox.messages) == 1

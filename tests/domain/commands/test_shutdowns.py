"""Shutdowns of applications and of single instances, also by force."""

from __future__ import annotations

from uuid import UUID

import pytest

from arrester.domain.commands import agent_versions
from arrester.domain.commands.decide import COMMAND_EXPIRY, decide
from arrester.domain.commands.request import CommandRequest
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    ApplicationLatched,
    CommandApplied,
    CommandCancelled,
    CommandIssued,
    CommandKind,
    CommandRefused,
    Event,
    EventData,
    InstanceLost,
    InstanceStarted,
    InstanceStopped,
    InstanceStopping,
)
from arrester.domain.state.stream_state import empty
from tests import histories
from tests.histories import APPLICATION, INSTANCE, NOON, OTHER_INSTANCE

ID, EARLIER = UUID(int=1), UUID(int=2)
APP, ONE = CommandKind.SHUT_DOWN_APPLICATION, CommandKind.SHUT_DOWN_INSTANCE
NEW = {"agent": "0.2.0", agent_versions.REPORTED_AS: str(agent_versions.VERSION)}


def server(data: EventData) -> Event:
    return histories.event(data, run=None, instance=None)


def started(versions: dict[str, str], instance: UUID = INSTANCE) -> Event:
    data = InstanceStarted(host="driver", pid=7, versions=versions)
    return histories.event(data, run=None, instance=instance)


TWO = [started(NEW), started(NEW, OTHER_INSTANCE)]


def of_instance(data: EventData) -> Event:
    return histories.event(data, run=None)


def when(
    kind: CommandKind,
    *events: Event,
    force: bool = False,
    instance: UUID | None = None,
    reason: str = "stuck",
) -> list[EventData]:
    requested = CommandRequest(
        command=ID,
        kind=kind,
        actor="ana",
        reason=reason,
        instance=instance or (INSTANCE if kind is ONE else None),
        force=force,
    )
    return decide(requested, empty(APPLICATION).fold(histories.stored(list(events))), now=NOON)


def refused(kind: CommandKind, *events: Event, force: bool = False) -> str:
    _, refusal = when(kind, *events, force=force)
    assert isinstance(refusal, CommandRefused)
    return refusal.reason


def in_progress(
    kind: CommandKind, *instances: UUID, force: bool = False, latched: bool = False
) -> list[Event]:
    """Return a shutdown by ben that the instances have not answered."""
    issued = CommandIssued(
        command=EARLIER,
        kind=kind,
        actor="ben",
        reason="night",
        force=force,
        instances=instances,
        expires_at=NOON + COMMAND_EXPIRY,
    )
    latch = ApplicationLatched(reason="night", actor="ben")
    return [server(issued), *([server(latch)] if latched else [])]


def test_one_instance_is_shut_down_without_a_latch() -> None:
    (command,) = when(ONE, *TWO)
    assert isinstance(command, CommandIssued)
    assert (command.instances, command.force) == ((INSTANCE,), False)
    (forced,) = when(ONE, *TWO, force=True)
    assert isinstance(forced, CommandIssued)
    assert forced.force


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([], "has no live instance"),
        ([of_instance(InstanceStopped(reason="done"))], "has ended already"),
        ([of_instance(InstanceLost(last_heard=NOON))], "is LOST: it fetches no commands"),
        ([of_instance(InstanceStopping(reason="done"))], "is ending already: PENDING_SHUTDOWN"),
        (
            in_progress(ONE, INSTANCE),
            "is still being shut down by ben; wait until it ends, or cancel or force it"
            f" (command {EARLIER})",
        ),
        (in_progress(APP, INSTANCE, OTHER_INSTANCE), "is still being shut down by ben"),
    ],
    ids=["unknown", "ended", "lost", "ending", "in progress", "with its application"],
)
def test_an_instance_is_not_shut_down_twice(events: list[Event], why: str) -> None:
    assert why in refused(ONE, *(TWO if events else []), *events)


def test_a_forced_shutdown_supersedes_one_in_progress() -> None:
    cancelled = CommandCancelled(
        command=EARLIER, actor="ana", reason="superseded by a forced shutdown by ana"
    )
    stopping = of_instance(InstanceStopping(reason="shut down by ben"))
    instance = [*TWO, *in_progress(ONE, INSTANCE), stopping]
    command, *rest = when(ONE, *instance, force=True)
    assert isinstance(command, CommandIssued)
    assert (command.instances, rest) == ((INSTANCE,), [cancelled])
    application = [*TWO, *in_progress(APP, INSTANCE, OTHER_INSTANCE, latched=True), stopping]
    command, *rest = when(APP, *application, force=True)
    assert isinstance(command, CommandIssued)
    # It is LATCHED already.
    assert (command.instances, rest) == ((INSTANCE, OTHER_INSTANCE), [cancelled])


def test_a_latched_application_with_ending_instances_is_shut_down_by_force() -> None:
    latched = server(ApplicationLatched(reason="night", actor="ben"))
    assert refused(APP, *TWO, latched) == "flights is LATCHED already"
    (command,) = when(APP, *TWO, latched, force=True)
    assert isinstance(command, CommandIssued)
    ended = [
        histories.event(InstanceStopped(reason="done"), run=None, instance=each)
        for each in (INSTANCE, OTHER_INSTANCE)
    ]
    why = refused(APP, *TWO, *ended, latched, force=True)
    assert why == "flights is LATCHED already, and no instance runs"


def test_a_forced_shutdown_is_not_forced_twice() -> None:
    forced = in_progress(APP, INSTANCE, force=True, latched=True)
    why = f"flights is still being shut down by ben; wait until it ends (command {EARLIER})"
    assert refused(APP, *TWO, *forced, force=True) == why
    forced = in_progress(ONE, INSTANCE, force=True)
    assert "is still being shut down by ben" in refused(ONE, *TWO, *forced, force=True)


def test_an_open_application_may_be_shut_down_by_force_at_once() -> None:
    command, *rest = when(APP, *TWO, force=True)
    assert isinstance(command, CommandIssued)
    assert command.force
    assert rest == [ApplicationLatched(reason="stuck", actor="ana")]
    assert isinstance(when(APP, force=True)[-1], CommandApplied)


@pytest.mark.parametrize(
    ("versions", "known"),
    [({"agent": "0.2.0"}, False), ({}, True), (NEW, True), ({"commands": "soon"}, True)],
    ids=["of 0.2.0", "not reported", "of now", "garbled"],
)
def test_a_command_that_an_older_agent_does_not_know_is_refused(
    versions: dict[str, str], known: bool
) -> None:
    for kind, force in ((ONE, False), (APP, True)):
        rest = when(kind, started(versions), force=force)[1:]
        reasons = [each.reason for each in rest if isinstance(each, CommandRefused)]
        what = f"a forced {kind}" if force else kind
        why = f"the agent of instance driver, pid 7, is too old: it does not know {what}"
        assert reasons == ([] if known else [why])
    assert len(when(APP, started(versions))) == 2


@pytest.mark.parametrize(
    ("kind", "force", "reason", "field"),
    [
        (CommandKind.START_APPLICATION, True, "x", "force"),
        (ONE, False, " ", "reason"),
        (ONE, False, "x", "instance"),
    ],
)
def test_an_invalid_shutdown_is_refused(
    kind: CommandKind, force: bool, reason: str, field: str
) -> None:
    requested = CommandRequest(
        command=ID,
        kind=kind,
        actor="ana",
        reason=reason,
        instance=INSTANCE if field == "reason" else None,
        force=force,
    )
    with pytest.raises(InvalidValue) as invalid:
        decide(requested, empty(APPLICATION), now=NOON)
    assert invalid.value.name == field

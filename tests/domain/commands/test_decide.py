"""The rules, as given(events).when(request).then(events)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrester.domain.commands import agent_versions
from arrester.domain.commands.decide import COMMAND_EXPIRY, decide
from arrester.domain.commands.kinds import KINDS, ROLLOUTS, TASK_KINDS, Subject
from arrester.domain.commands.refusals.commands import pending_command, refusal
from arrester.domain.commands.request import CommandRequest
from arrester.domain.commands.timeouts import timeout_events
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    ApplicationLatched,
    ApplicationOpened,
    CommandApplied,
    CommandCancelled,
    CommandDelivered,
    CommandExpired,
    CommandIssued,
    CommandKind,
    CommandRefused,
    Event,
    EventData,
    InstanceFound,
    InstanceLost,
    InstanceStarted,
    InstanceStopped,
    Redrive,
    RedriveSlice,
    ResumeHow,
    Rollout,
    Run,
    TaskDied,
    TaskDismissed,
    TaskPaused,
    TaskResumed,
    ThreadDied,
    ThreadStarted,
)
from arrester.domain.identity.names import TaskId
from arrester.domain.identity.redis_keys import LOST_AFTER_SECONDS
from arrester.domain.state.stream_state import StreamState, empty
from tests import histories
from tests.histories import APPLICATION, INSTANCE, JFK, NOON, OTHER_INSTANCE

ID, OTHER_ID = UUID(int=1), UUID(int=2)
WITH_SLICE = (CommandKind.REDRIVE_RECORDS, CommandKind.TEST_DEAD_LETTER)
PAUSED = [*histories.started(), *histories.paused()]


def request(kind: CommandKind, task: TaskId | None) -> CommandRequest:
    target = 9 if kind is CommandKind.RESUME_AT else None
    of_pipeline = (Subject.STAGE, Subject.PIPELINE, Subject.DEAD_LETTERS)
    about = "x" if KINDS[kind].subject in of_pipeline else None
    return CommandRequest(
        command=ID,
        kind=kind,
        actor="ana",
        reason="because",
        task=task,
        target=target,
        patch='[{"op":"remove","path":"/x"}]' if "patch" in KINDS[kind].fields else None,
        pipeline=about,
        stage=about,
        checkpoint=about if KINDS[kind].subject is Subject.DEAD_LETTERS else None,
        redrive=Redrive(records=1) if kind is CommandKind.REDRIVE else None,
        slice=RedriveSlice(first=0, count=1) if kind in WITH_SLICE else None,
        rollout=Rollout(tasks=1) if kind in ROLLOUTS else None,
        instance=INSTANCE if kind is CommandKind.SHUT_DOWN_INSTANCE else None,
    )


class Given:
    """The state after some events, and the events that follow from a request."""

    def __init__(self, *events: Event) -> None:
        self.state: StreamState = empty(APPLICATION).fold(histories.stored(list(events)))

    def when(self, kind: CommandKind, *, task: TaskId | None = None) -> list[EventData]:
        requested = request(kind, task)
        return decide(requested, self.state, now=NOON)

    def refuses(self, kind: CommandKind, *, task: TaskId | None = None) -> str:
        """Return why; the log has both, the command and the refusal."""
        issued, refused = self.when(kind, task=task)
        assert isinstance(issued, CommandIssued)
        assert isinstance(refused, CommandRefused)
        assert refusal(request(kind, task), self.state) == refused.reason
        return refused.reason


def server(data: EventData) -> Event:
    return histories.event(data, run=None, instance=None)


def issued(
    kind: CommandKind = CommandKind.RESUME_TASK, *, instances: tuple[UUID, ...] = (INSTANCE,)
) -> Event:
    """Return another open command, of ben."""
    about_task = kind is not CommandKind.SHUT_DOWN_APPLICATION
    return server(
        CommandIssued(
            command=OTHER_ID,
            kind=kind,
            actor="ben",
            instances=instances,
            expires_at=NOON + COMMAND_EXPIRY,
            pipeline=JFK.pipeline if about_task else None,
            checkpoint=JFK.checkpoint if about_task else None,
            task=JFK.key if about_task else None,
        )
    )


LATCHED = server(ApplicationLatched(reason="night", actor="ben"))


# ── task commands ────────────────────────────────────────────────────────────────────────────


def test_a_running_task_can_be_paused_by_hand() -> None:
    (command,) = Given(*histories.started()).when(CommandKind.PAUSE_TASK, task=JFK)
    assert isinstance(command, CommandIssued)
    assert command.instances == (INSTANCE,)
    paused = Given(*PAUSED).refuses(CommandKind.PAUSE_TASK, task=JFK)
    assert paused == "only a RUNNING task can be paused; delays_JFK is PAUSED"
    whole = TaskId(application=APPLICATION, pipeline="delays", checkpoint="cp-1", key=None)
    assert "only a task with a key" in Given().refuses(CommandKind.PAUSE_TASK, task=whole)


def test_only_a_task_that_died_alone_can_be_restarted() -> None:
    failure = histories.FAILURE
    died = histories.event(TaskDied(task="JFK", position=7, failure=failure, alone=True))
    given = Given(*histories.started(), died)
    (command,) = given.when(CommandKind.RESTART_TASK, task=JFK)
    assert isinstance(command, CommandIssued)
    assert (command.instances, command.position) == ((INSTANCE,), 7)
    assert "only a PAUSED task" in given.refuses(CommandKind.RESUME_TASK, task=JFK)
    paused = Given(*PAUSED).refuses(CommandKind.RESTART_TASK, task=JFK)
    assert paused == "only a DEAD task can be restarted; delays_JFK is PAUSED"
    ended = Given(*histories.started(), died, histories.event(ThreadDied(reason="boom")))
    assert "its next run restarts delays_JFK" in ended.refuses(CommandKind.RESTART_TASK, task=JFK)


def test_a_task_that_was_paused_by_hand_has_no_record_to_skip() -> None:
    by_hand = histories.event(TaskPaused(task="JFK", position=None))
    given = Given(*histories.started(), by_hand)
    assert "paused by hand" in given.refuses(CommandKind.SKIP_RECORD, task=JFK)
    assert len(given.when(CommandKind.RESUME_TASK, task=JFK)) == 1


def test_a_task_resumes_at_its_own_position_or_a_later_one() -> None:
    (command,) = Given(*PAUSED).when(CommandKind.RESUME_AT, task=JFK)
    assert isinstance(command, CommandIssued)
    assert (command.position, command.target) == (7, 9)
    behind = Given(*PAUSED[:2], *histories.paused(10))
    why = behind.refuses(CommandKind.RESUME_AT, task=JFK)
    assert why == "delays_JFK is held at position 10; 9 is before it"


@pytest.mark.parametrize("kind", [CommandKind.RESUME_TASK, CommandKind.SKIP_RECORD])
def test_a_paused_task_can_be_resumed(kind: CommandKind) -> None:
    assert Given(*PAUSED).when(kind, task=JFK) == [
        CommandIssued(
            command=ID,
            kind=kind,
            actor="ana",
            reason="because",
            pipeline="delays",
            checkpoint="cp-1",
            task="JFK",
            position=7,
            instances=(INSTANCE,),
            expires_at=NOON + COMMAND_EXPIRY,
        )
    ]


def test_only_a_paused_task_can_be_resumed() -> None:
    unknown = Given().refuses(CommandKind.RESUME_TASK, task=JFK)
    assert unknown == "only a PAUSED task can resume; delays_JFK is RUNNING"
    resumed = histories.event(TaskResumed(task="JFK", how=ResumeHow.RETRY))
    assert Given(*PAUSED, resumed).refuses(CommandKind.SKIP_RECORD, task=JFK) == unknown


def test_the_pending_command_is_the_reason_of_a_refusal() -> None:
    def pending(kind: CommandKind, task: TaskId | None, *events: Event) -> UUID | None:
        state = Given(*events).state
        requested = request(kind, task)
        found = pending_command(requested, state, reason=refusal(requested, state))
        return None if found is None else found.id

    assert pending(CommandKind.SKIP_RECORD, JFK, *PAUSED, issued()) == OTHER_ID
    # The refusal is about the state of the task, not about the open command.
    assert pending(CommandKind.PAUSE_TASK, JFK, *PAUSED, issued()) is None
    shutdown = issued(CommandKind.SHUT_DOWN_APPLICATION)
    assert pending(CommandKind.START_APPLICATION, None, *PAUSED, LATCHED, shutdown) == OTHER_ID
    assert pending(CommandKind.RESUME_TASK, JFK, *PAUSED, LATCHED) is None
    assert pending(CommandKind.RESUME_TASK, JFK, *PAUSED) is None


def test_one_command_at_a_time_for_a_task() -> None:
    why = Given(*PAUSED, issued()).refuses(CommandKind.SKIP_RECORD, task=JFK)
    assert why == (
        "RESUME_TASK by ben is already in progress for this task;"
        f" wait until it ends, or cancel it (command {OTHER_ID})"
    )
    fetched = histories.event(CommandDelivered(command=OTHER_ID))
    why = Given(*PAUSED, issued(), fetched).refuses(CommandKind.SKIP_RECORD, task=JFK)
    assert why.endswith(f"for this task; wait until it ends (command {OTHER_ID})")


def test_no_task_is_resumed_in_a_latched_application() -> None:
    why = Given(*PAUSED, LATCHED).refuses(CommandKind.RESUME_TASK, task=JFK)
    assert why == "flights is LATCHED; start the application first"


@pytest.mark.parametrize(
    "gone",
    [
        histories.event(ThreadDied(reason="failed")),
        histories.event(InstanceLost(last_heard=NOON), run=None),
        histories.event(InstanceStopped(reason="done"), run=None),
        histories.event(
            ThreadStarted(), run=Run(pipeline="delays", checkpoint="cp-1", epoch=2),
            instance=OTHER_INSTANCE,
        ),
    ],
    ids=["its thread died", "it is lost", "it ended", "another one runs it"],
)  # fmt: skip
def test_a_command_waits_for_the_instance_that_runs_the_task(gone: Event) -> None:
    (command,) = Given(*PAUSED, gone).when(CommandKind.RESUME_TASK, task=JFK)
    assert isinstance(command, CommandIssued)
    assert command.instances == ()


def test_a_task_without_a_run_can_be_dismissed() -> None:
    running = Given(*PAUSED).refuses(CommandKind.DISMISS_TASK, task=JFK)
    assert running.startswith("instance driver runs delays on this checkpoint")
    for gone in (
        histories.event(ThreadDied(reason="failed")),
        histories.event(InstanceLost(last_heard=NOON), run=None),
        histories.event(InstanceStopped(reason="done"), run=None),
    ):
        for latched in ([], [LATCHED]):
            events = Given(*PAUSED, gone, *latched).when(CommandKind.DISMISS_TASK, task=JFK)
            assert events[1:] == [
                TaskDismissed(task="JFK", actor="ana", reason="because"),
                CommandApplied(command=ID),
            ]
    again = [*PAUSED, gone, histories.event(TaskDismissed(task="JFK", actor="ana", reason="x"))]
    why = "only a task that is PAUSED, DEAD or holds records can be dismissed; delays_JFK is {}"
    refused = Given(*again).refuses(CommandKind.DISMISS_TASK, task=JFK)
    assert refused == why.format("DISMISSED")
    refused = Given(*histories.started()).refuses(CommandKind.DISMISS_TASK, task=JFK)
    assert refused == why.format("RUNNING")
    busy = Given(*PAUSED, gone, issued()).refuses(CommandKind.DISMISS_TASK, task=JFK)
    assert busy.startswith("RESUME_TASK by ben is already in progress for this task")


def test_a_task_of_an_older_agent_gets_no_command_that_the_agent_does_not_know() -> None:
    versions = {agent_versions.REPORTED_AS: "3"}
    older = histories.event(InstanceStarted(host="driver", pid=7, versions=versions), run=None)
    given_ = Given(older, *PAUSED[1:])
    why = "the agent of instance driver, pid 7, is too old: it does not know EDIT_RECORD"
    assert given_.refuses(CommandKind.EDIT_RECORD, task=JFK) == why
    why = why.replace("EDIT", "TEST")
    assert given_.refuses(CommandKind.TEST_RECORD, task=JFK) == why
    assert len(given_.when(CommandKind.SKIP_RECORD, task=JFK)) == 1


def test_a_test_needs_a_run_and_delays_no_other_command() -> None:
    test = CommandKind.TEST_RECORD
    [tested] = Given(*PAUSED).when(test, task=JFK)
    assert isinstance(tested, CommandIssued) and tested.instances == (INSTANCE,)
    waiting = Given(*PAUSED, issued(test))
    assert waiting.refuses(test, task=JFK).startswith("TEST_RECORD by ben is already in progress")
    assert len(waiting.when(CommandKind.EDIT_RECORD, task=JFK)) == 1
    # The task is about to continue.
    assert "EDIT_RECORD by ben" in Given(*PAUSED, issued(CommandKind.EDIT_RECORD)).refuses(
        test, task=JFK
    )
    gone = Given(*PAUSED, histories.event(InstanceLost(last_heard=NOON), run=None))
    why = "no instance runs delays, and only a running pipeline can test a record"
    assert gone.refuses(test, task=JFK) == why
    by_hand = Given(*histories.started(), histories.event(TaskPaused(task="JFK", position=None)))
    why = "delays_JFK was paused by hand; there is no failed record to test"
    assert by_hand.refuses(test, task=JFK) == why


def test_a_task_of_an_older_checkpoint_gets_no_command_but_its_dismissal() -> None:
    newer = histories.event(
        ThreadStarted(), minute=9, run=Run(pipeline="delays", checkpoint="cp-2", epoch=1)
    )
    why = "delays_JFK is of an older checkpoint; the newest run of delays uses cp-2"
    given = Given(*PAUSED, newer)
    for kind in (CommandKind.RESUME_TASK, CommandKind.SKIP_RECORD, CommandKind.RESUME_AT):
        assert given.refuses(kind, task=JFK) == why
    # Its own run has a live instance.
    assert "runs delays on this checkpoint" in given.refuses(CommandKind.DISMISS_TASK, task=JFK)
    ended = Given(*PAUSED, histories.event(ThreadDied(reason="done")), newer)
    assert len(ended.when(CommandKind.DISMISS_TASK, task=JFK)) == 3


# ── application commands ─────────────────────────────────────────────────────────────────────


def test_a_shutdown_latches_cancels_commands_and_addresses_every_instance() -> None:
    other = histories.event(InstanceStarted(host="h", pid=8), run=None, instance=OTHER_INSTANCE)
    command, *rest = Given(*PAUSED, other, issued()).when(CommandKind.SHUT_DOWN_APPLICATION)
    assert isinstance(command, CommandIssued)
    assert command.instances == (INSTANCE, OTHER_INSTANCE)
    assert rest == [
        ApplicationLatched(reason="because", actor="ana"),
        CommandCancelled(command=OTHER_ID, actor="ana", reason="the application was shut down"),
    ]


def test_a_shutdown_without_instances_is_applied_by_latching() -> None:
    assert Given().when(CommandKind.SHUT_DOWN_APPLICATION)[1:] == [
        ApplicationLatched(reason="because", actor="ana"),
        CommandApplied(command=ID, detail="no instance was running; latched"),
    ]


def test_starting_an_application_opens_it() -> None:
    assert Given(LATCHED).when(CommandKind.START_APPLICATION)[1:] == [
        ApplicationOpened(reason="because", actor="ana"),
        CommandApplied(command=ID, detail="instances may run again"),
    ]


def test_an_open_application_cannot_be_started_nor_a_latched_one_shut_down() -> None:
    open_ = Given(*PAUSED).refuses(CommandKind.START_APPLICATION)
    assert open_ == "only a LATCHED application can be started; flights is OPEN"
    latched = Given(LATCHED).refuses(CommandKind.SHUT_DOWN_APPLICATION)
    assert latched == "flights is LATCHED already"


@pytest.mark.parametrize("kind", [CommandKind.START_APPLICATION, CommandKind.SHUT_DOWN_APPLICATION])
def test_other_commands_are_refused_during_a_shutdown(kind: CommandKind) -> None:
    why = Given(*PAUSED, issued(CommandKind.SHUT_DOWN_APPLICATION), LATCHED).refuses(kind)
    assert why == (
        "flights is still being shut down by ben;"
        f" wait until it ends, or force it (command {OTHER_ID})"
    )


@pytest.mark.parametrize(
    "requested",
    [
        CommandRequest(command=ID, kind=CommandKind.RESUME_TASK, actor="ana"),
        CommandRequest(command=ID, kind=CommandKind.SKIP_RECORD, actor="ana", task=JFK),
        CommandRequest(
            command=ID, kind=CommandKind.SKIP_RECORD, actor="ana", task=JFK, reason=" \n"
        ),
        CommandRequest(command=ID, kind=CommandKind.SHUT_DOWN_APPLICATION, actor="ana"),
        CommandRequest(command=ID, kind=CommandKind.RESUME_AT, actor="ana", task=JFK, reason="x"),
        CommandRequest(command=ID, kind=CommandKind.RESUME_AT, actor="ana", task=JFK, target=1),
        CommandRequest(command=ID, kind=CommandKind.EDIT_RECORD, actor="a", task=JFK, reason="x"),
        CommandRequest(
            command=ID, kind=CommandKind.SKIP_RECORD, actor="a", task=JFK, reason="x", patch="[]"
        ),
        CommandRequest(
            command=ID, kind=CommandKind.RESUME_AT, actor="a", task=JFK, reason="x", target=2**63
        ),
        CommandRequest(
            command=ID, kind=CommandKind.START_APPLICATION, actor="ana", reason="\ud83d"
        ),
        CommandRequest(command=ID, kind=CommandKind.START_APPLICATION, actor="\udc00"),
        CommandRequest(
            command=ID, kind=CommandKind.START_APPLICATION, actor="ana", reason="x" * 2001
        ),
    ],
)
def test_an_incomplete_request_is_invalid(requested: CommandRequest) -> None:
    with pytest.raises(InvalidValue):
        decide(requested, Given(*PAUSED).state, now=NOON)


@given(histories.histories, st.sampled_from(CommandKind))
def test_every_request_begins_with_its_command(events: list[Event], kind: CommandKind) -> None:
    task = JFK if kind in TASK_KINDS else None
    decided = Given(*events).when(kind, task=task)
    assert isinstance(decided[0], CommandIssued)
    assert not any(isinstance(each, CommandIssued) for each in decided[1:])


# ── time ─────────────────────────────────────────────────────────────────────────────────────


def passes(
    given_: Given,
    *,
    alive: Sequence[UUID] = (),
    may_declare_lost: bool = True,
    now: datetime = NOON,
) -> list[tuple[UUID | None, EventData]]:
    events = timeout_events(
        given_.state, alive=set(alive), may_declare_lost=may_declare_lost, now=now
    )
    return [(event.instance, event.data) for event in events]


def test_an_instance_without_heartbeats_is_lost_if_redis_was_available() -> None:
    running = Given(*histories.started())
    later = NOON + timedelta(hours=1)
    last_seen = later - timedelta(seconds=LOST_AFTER_SECONDS)
    lost = InstanceLost(last_heard=last_seen)
    assert passes(running, now=later) == [(INSTANCE, lost)]
    assert passes(running, alive=[INSTANCE]) == []
    assert passes(running, may_declare_lost=False) == []


def test_an_ended_or_lost_instance_is_not_lost_again() -> None:
    ended = histories.event(InstanceStopped(reason="done"), run=None)
    assert passes(Given(*histories.started(), ended)) == []
    lost = histories.event(InstanceLost(last_heard=NOON), run=None)
    assert passes(Given(*histories.started(), lost)) == []


def test_a_lost_instance_with_a_heartbeat_is_found() -> None:
    lost = Given(*histories.started(), histories.event(InstanceLost(last_heard=NOON), run=None))
    found = [(INSTANCE, InstanceFound())]
    assert passes(lost, alive=[INSTANCE], may_declare_lost=False) == found


def test_a_command_expires_at_its_time_and_not_before() -> None:
    waiting = Given(*PAUSED, issued())
    end = NOON + COMMAND_EXPIRY
    assert passes(waiting, alive=[INSTANCE], now=end - timedelta(microseconds=1)) == []
    assert passes(waiting, alive=[INSTANCE], now=end) == [
        (None, CommandExpired(command=OTHER_ID, reason="not applied within its time"))
    ]


def test_a_command_expires_if_its_instance_ended() -> None:
    ended = histories.event(InstanceStopped(reason="done"), run=None)
    assert passes(Given(*PAUSED, issued(), ended)) == [
        (
            None,
            CommandExpired(
                command=OTHER_ID,
                of_instance=INSTANCE,
                reason="the instance ended NOT_RUNNING before it answered",
            ),
        )
    ]
    lost, expired = passes(Given(*PAUSED, issued()))
    assert isinstance(lost[1], InstanceLost)
    assert isinstance(expired[1], CommandExpired)
    assert (expired[1].of_instance, expired[1].reason) == (INSTANCE, "the instance is LOST")


@given(histories.histories, st.sets(st.sampled_from([INSTANCE, OTHER_INSTANCE])))
def test_timeouts_are_reported_once(events: list[Event], alive: set[UUID]) -> None:
    state = Given(*events).state
    events = timeout_events(state, alive=alive, may_declare_lost=True, now=NOON)
    state.fold(histories.stored(events, after=len(events)))
    assert timeout_events(state, alive=alive, may_declare_lost=True, now=NOON) == []

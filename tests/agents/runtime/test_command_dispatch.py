from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import msgspec
import pytest

from arrester.agents.config import AgentConfig
from arrester.agents.failures.driver_failure import driver_failure
from arrester.agents.journal.journal import Superseded
from arrester.agents.runtime import command_dispatch
from arrester.agents.runtime.instance import Ending
from arrester.agents.runtime.runtime import Runtime
from arrester.agents.runtime.thread_protocol import (
    Outbox,
    PipelineCommand,
    RedriveCommand,
    ThreadEnd,
)
from arrester.agents.runtime.uncaught_handler import UncaughtHandler
from arrester.agents.transport import command_poller
from arrester.agents.transport.redis_client import RedisClient
from arrester.controlplane import signing
from arrester.domain.commands.kinds import KINDS, AppliedBy, Subject, TaskAct
from arrester.domain.errors import StartRefused
from arrester.domain.events import (
    ChosenDeadLetters,
    CommandApplied,
    CommandDelivered,
    CommandIssued,
    CommandKind,
    CommandRefused,
    EventData,
    InstanceStopped,
    PolicyChanged,
    RecordTest,
    RedriveSlice,
    ResumeHow,
    ThreadDied,
)
from arrester.domain.identity import redis_keys
from arrester.domain.state import drift
from arrester.domain.state.states import InstanceStatus, ThreadStatus
from arrester.domain.state.uncaught_policy import UncaughtAnswer
from arrester.domain.wire import codec, command_codec
from tests.agents.fake_thread import FakeThread, applied, refused
from tests.agents.pipeline_bench import levels_of
from tests.agents.redis_server import FoldingSide, Server
from tests.patience import PATIENCE_SECONDS, wait_until

COMMANDS = redis_keys.commands("flights")
STATE = redis_keys.state("flights")


class Operator:
    """Commands as the server relays them, and their answers."""

    def __init__(self, server: Server, folding: FoldingSide) -> None:
        self._client = server.client
        self._folding = folding

    def requested(
        self,
        kind: CommandKind = CommandKind.RESUME_TASK,
        *,
        to: Runtime | None = None,
        task: str | None = "JFK",
        checkpoint: str | None = "c1",
        expires_in: timedelta = timedelta(minutes=15),
        target: int | None = None,
        patch: str | None = None,
        error: bool = False,
        force: bool = False,
        stage: str | None = None,
        until: datetime | None = None,
    ) -> CommandIssued:
        command = CommandIssued(
            command=uuid4(),
            kind=kind,
            actor="ana",
            reason="because",
            pipeline="delays",
            checkpoint=checkpoint,
            task=task,
            position=7,
            target=target,
            patch=patch,
            stage=stage,
            until=until,
            answer=None if stage is None else "CONTINUE",
            error=error,
            force=force,
            instances=() if to is None else (to.id,),
            expires_at=datetime.now(UTC) + expires_in,
        )
        self.relay(command)
        return command

    def relay(self, command: CommandIssued) -> None:
        self.put(command_codec.encode_command(command))

    def put(self, body: bytes, *, signature: bytes | None = None) -> None:
        """Put a command into the stream; signed as the server signs it, or as given."""
        signature = signing.sign_command("flights", body) if signature is None else signature
        self._client.xadd(COMMANDS, {"body": body, "signature": signature})

    def answers(self, command: CommandIssued) -> list[EventData]:
        """Return the answers to a command, in order."""
        self._folding.take()
        return [
            event.data
            for event in self._folding.events
            if isinstance(event.data, CommandDelivered | CommandApplied | CommandRefused)
            and event.data.command == command.command
        ]

    def answered(self, command: CommandIssued) -> list[EventData]:
        wait_until(lambda: len(self.answers(command)) >= 2)
        return self.answers(command)


@pytest.fixture
def operator(redis_server: Server, folding: FoldingSide) -> Operator:
    return Operator(redis_server, folding)


@pytest.fixture
def runtime(redis_server: Server, tmp_path: Path) -> Iterator[Runtime]:
    runtime = connected(redis_server, tmp_path)
    yield runtime
    runtime.end(Ending.STOPPED, "the test is over")


def connected(
    server: Server,
    folder: Path,
    errors: dict[str, object] | None = None,
    *,
    on_uncaught: UncaughtHandler | None = None,
    key: str = "",
) -> Runtime:
    environment = {
        "ARRESTER_SPOOL": str(folder),
        "REDIS_URL": server.url,
        "ARRESTER_SERVER_KEY": key,
    }
    config = AgentConfig.read("flights", errors or {}, environment=environment)
    return Runtime(config, versions={}, describe=driver_failure, on_uncaught=on_uncaught)


def begin(
    runtime: Runtime, prepare: Callable[[FakeThread], object] = lambda thread: None
) -> FakeThread:
    def make(outbox: Outbox, on_end: Callable[[ThreadEnd], None]) -> FakeThread:
        thread = FakeThread(outbox, on_end, instance=runtime.id)
        prepare(thread)
        return thread

    return runtime.start(make, FakeThread.start)


def delivered(command: CommandIssued) -> CommandDelivered:
    return CommandDelivered(command=command.command)


def test_a_resume_reaches_its_task_and_is_answered(runtime: Runtime, operator: Operator) -> None:
    thread = begin(runtime)
    resume = operator.requested()
    assert operator.answered(resume) == [
        delivered(resume),
        CommandApplied(command=resume.command),
    ]
    assert thread.resumes == [("JFK", ResumeHow.RETRY, 7)]


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        (CommandKind.SKIP_RECORD, ResumeHow.SKIP),
        (CommandKind.RESTART_TASK, ResumeHow.RESTART),
    ],
)
def test_each_command_kind_resumes_its_task_in_its_own_way(
    runtime: Runtime, operator: Operator, kind: CommandKind, how: ResumeHow
) -> None:
    thread = begin(runtime)
    operator.answered(operator.requested(kind))
    assert thread.resumes == [("JFK", how, 7)]


def test_a_command_delivered_twice_is_applied_once(runtime: Runtime, operator: Operator) -> None:
    thread = begin(runtime)
    resume = operator.requested()
    operator.relay(resume)
    operator.relay(resume)
    operator.answered(operator.requested(task="EWR"))
    assert len(thread.resumes) == 2
    assert len(operator.answers(resume)) == 2


@pytest.mark.parametrize("age", [timedelta(0), timedelta(hours=5)])
@pytest.mark.parametrize("fetched_before", [False, True])
def test_a_command_that_an_earlier_instance_applied_is_answered_again(
    runtime: Runtime, operator: Operator, age: timedelta, fetched_before: bool
) -> None:
    resume = operator.requested(expires_in=timedelta(minutes=15) - age)
    rejected = operator.requested(expires_in=timedelta(minutes=15) - age)

    def answered_before(thread: FakeThread) -> None:
        thread.journal[resume.command] = applied("resumed from position 7")
        thread.journal[rejected.command] = refused("JFK is RUNNING")

    if fetched_before:
        runtime.open()
        operator.answered(operator.requested(to=runtime, checkpoint="c2"))
    thread = begin(runtime, answered_before)
    assert operator.answered(resume) == [
        delivered(resume),
        CommandApplied(command=resume.command, detail="resumed from position 7"),
    ]
    assert operator.answered(rejected) == [
        delivered(rejected),
        CommandRefused(command=rejected.command, reason="JFK is RUNNING"),
    ]
    assert thread.resumes == []


def test_an_expired_unclaimed_command_is_dropped_for_a_new_one(
    runtime: Runtime, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_dispatch, "MAX_UNCLAIMED", 1)
    stale = operator.requested(expires_in=-timedelta(seconds=1))
    resume = operator.requested()
    runtime.open()
    operator.answered(operator.requested(to=runtime, checkpoint="c2"))
    begin(runtime)
    assert isinstance(operator.answered(resume)[1], CommandApplied)
    assert operator.answers(stale) == []


def test_a_pause_and_a_position_reach_their_task(runtime: Runtime, operator: Operator) -> None:
    thread = begin(runtime)
    pause = operator.requested(CommandKind.PAUSE_TASK, task="EWR")
    assert isinstance(operator.answered(pause)[1], CommandApplied)
    again = operator.requested(CommandKind.PAUSE_TASK, task="EWR")
    assert isinstance(operator.answered(again)[1], CommandRefused)
    operator.answered(operator.requested(CommandKind.RESUME_AT, target=9))
    operator.answered(operator.requested(CommandKind.EDIT_RECORD, patch="[]"))
    assert thread.resumes == [
        *(("EWR", TaskAct.PAUSE, 7), ("EWR", TaskAct.PAUSE, 7)),
        *(("JFK", ResumeHow.AT, 9), ("JFK", ResumeHow.MEND, 7)),
    ]


def test_a_test_is_answered_with_its_result_and_runs_again_in_another_instance(
    runtime: Runtime, operator: Operator
) -> None:
    thread = begin(runtime)
    test = operator.requested(CommandKind.TEST_RECORD, patch="[]")
    result = CommandApplied(
        command=test.command, detail="the record passes", test=RecordTest(rows=2)
    )
    assert operator.answered(test) == [delivered(test), result]
    # It is not in the checkpoint: after a kill, the next instance runs it once more.
    assert thread.answer_to(test.command) is None
    operator.relay(test)
    assert thread.resumes == [("JFK", TaskAct.TEST, 7)]


def test_a_redrive_reaches_its_run_with_its_dead_letters(
    runtime: Runtime, operator: Operator
) -> None:
    thread = begin(runtime)
    at = datetime.now(UTC)
    ids = [uuid4(), uuid4()]
    issued = CommandIssued(
        command=uuid4(),
        kind=CommandKind.REDRIVE_RECORDS,
        actor="ana",
        reason="mended",
        pipeline="delays",
        checkpoint="c1",
        slice=RedriveSlice(first=0, count=2),
        dead_letters=ChosenDeadLetters(
            ids=b"".join(id.bytes for id in ids), since=at, until=at, patch="[]"
        ),
        part_of=uuid4(),
        instances=(runtime.id,),
        expires_at=at + timedelta(minutes=5),
    )
    operator.relay(issued)
    operator.relay(issued)
    assert isinstance(operator.answered(issued)[1], CommandApplied)
    assert thread.redrives == [
        RedriveCommand(
            dead_letters=issued.dead_letters,
            redrive=issued.part_of,
            command=issued.command,
            actor="ana",
            reason="mended",
        )
    ]


def test_each_kind_that_agents_apply_is_dispatched(runtime: Runtime, operator: Operator) -> None:
    begin(runtime)
    commands = [
        operator.requested(
            row.kind,
            to=runtime,
            target=9 if "target" in row.fields else None,
            patch="[]" if "patch" in row.fields else None,
            stage="produce" if row.subject is Subject.STAGE else None,
        )
        for row in KINDS.values()
        if row.applied_by is AppliedBy.AGENT and not row.is_shutdown
    ]
    for command in commands:
        answer = operator.answered(command)[1]
        reason = answer.reason if isinstance(answer, CommandRefused) else ""
        for unreached in ("failed here", "not for an instance", "no thread of this instance"):
            assert unreached not in reason, command.kind


def test_a_shutdown_requested_by_a_failure_ends_in_error(
    runtime: Runtime, operator: Operator
) -> None:
    begin(runtime)
    shutdown = operator.requested(CommandKind.SHUT_DOWN_APPLICATION, to=runtime, error=True)
    assert runtime.termination.wait(PATIENCE_SECONDS) is Ending.SHUT_DOWN
    assert runtime.instance.status is InstanceStatus.ERROR
    assert isinstance(operator.answered(shutdown)[1], CommandApplied)


def test_the_heartbeat_has_the_hash_of_stopped_tasks_and_a_requested_report_is_sent(
    frequent_heartbeats: None, runtime: Runtime, redis_server: Server
) -> None:
    def sent() -> codec.Heartbeat:
        found = redis_server.client.get(redis_keys.heartbeat("flights", runtime.id))
        return msgspec.json.decode(found or b"", type=codec.Heartbeat)

    thread = begin(runtime, lambda thread: setattr(thread, "weight", 7))
    wait_until(lambda: redis_server.client.exists(redis_keys.heartbeat("flights", runtime.id)))
    redis_server.client.set(redis_keys.report("flights", runtime.id), "r1", ex=60)
    wait_until(lambda: sent().standing == drift.state_hash([7]))
    wait_until(lambda: thread.reports == 1)
    thread.weight = None
    wait_until(lambda: sent().standing is None)


def test_a_busy_pipeline_does_not_delay_the_commands_of_another(
    runtime: Runtime, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = begin(runtime)
    busy.may_apply.clear()
    begin(runtime, lambda thread: setattr(thread, "checkpoint_id", "c2"))
    first = operator.requested()
    late = operator.requested()
    assert busy.applying.wait(PATIENCE_SECONDS)

    assert isinstance(operator.answered(operator.requested(checkpoint="c2"))[1], CommandApplied)

    assert operator.answers(first) == [delivered(first)]
    wait_until(lambda: operator.answers(late) == [delivered(late)])
    # As after its time.
    monkeypatch.setattr(command_dispatch, "_is_expired", lambda *_: True)
    busy.may_apply.set()
    assert isinstance(operator.answered(first)[1], CommandApplied)
    assert operator.answered(late)[1] == CommandRefused(
        command=late.command, reason="expired while it waited for its turn"
    )
    assert len(busy.resumes) == 1


def test_a_command_older_than_its_thread_is_applied(runtime: Runtime, operator: Operator) -> None:
    resume = operator.requested()
    runtime.open()
    wait_until(lambda: runtime.metrics()["redis-reachable"])
    operator.answered(operator.requested(to=runtime, checkpoint="c2"))
    begin(runtime)
    assert len(operator.answered(resume)) == 2


def test_a_refusal_has_the_reason_of_the_thread(
    runtime: Runtime, operator: Operator, caplog: pytest.LogCaptureFixture
) -> None:
    begin(runtime)
    resume = operator.requested(task="EWR")
    assert operator.answered(resume)[1] == CommandRefused(
        command=resume.command, reason="EWR is RUNNING"
    )
    line = "pipeline 'delays', task 'EWR': resume task by ana (because): refused: EWR is RUNNING"
    assert levels_of(line, caplog) == ["WARNING"]


def test_the_log_of_the_driver_has_who_did_what(
    runtime: Runtime, operator: Operator, caplog: pytest.LogCaptureFixture
) -> None:
    begin(runtime)
    skip = operator.requested(CommandKind.SKIP_RECORD)
    operator.answered(skip)
    line = "pipeline 'delays', task 'JFK': skip record and resume by ana (because): "
    assert levels_of(line, caplog) == ["WARNING"]
    (record,) = (each for each in caplog.records if each.getMessage().startswith(line))
    assert record.getMessage().endswith(f" (command {skip.command})")
    assert record.__dict__["command_id"] == str(skip.command)
    operator.answered(operator.requested(CommandKind.SHUT_DOWN_INSTANCE, to=runtime))
    ends = "flights: this instance stops: shut down by ana: because"
    assert levels_of(ends, caplog) == ["WARNING"]


def test_an_expired_command_is_refused_and_not_applied(
    runtime: Runtime, operator: Operator
) -> None:
    thread = begin(runtime)
    late = operator.requested(expires_in=-timedelta(seconds=1))
    assert operator.answered(late)[1] == CommandRefused(
        command=late.command, reason="expired before it was fetched"
    )
    shutdown = operator.requested(
        CommandKind.SHUT_DOWN_APPLICATION, to=runtime, expires_in=-timedelta(seconds=1)
    )
    assert isinstance(operator.answered(shutdown)[1], CommandRefused)
    assert thread.resumes == []
    assert thread.alive


def test_commands_expire_by_the_clock_of_the_server(
    runtime: Runtime, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour = timedelta(hours=1)
    monkeypatch.setattr(RedisClient, "server_time", lambda self: datetime.now(UTC) + hour)
    begin(runtime)
    assert isinstance(operator.answered(operator.requested())[1], CommandRefused)
    fresh = operator.requested(expires_in=hour + timedelta(minutes=1))
    assert isinstance(operator.answered(fresh)[1], CommandApplied)


def test_a_command_for_another_checkpoint_is_left_to_its_owner(
    runtime: Runtime, operator: Operator
) -> None:
    thread = begin(runtime)
    foreign = operator.requested(checkpoint="c2")
    operator.answered(operator.requested())
    assert operator.answers(foreign) == []
    assert len(thread.resumes) == 1


def test_an_addressed_instance_without_the_pipeline_refuses(
    runtime: Runtime, operator: Operator
) -> None:
    begin(runtime)
    answer = operator.answered(operator.requested(to=runtime, checkpoint="c2"))[1]
    assert isinstance(answer, CommandRefused)
    assert "no thread of this instance runs pipeline delays at checkpoint c2" in answer.reason


def test_an_exception_of_the_thread_is_a_refusal_and_the_next_command_works(
    runtime: Runtime, operator: Operator
) -> None:
    thread = begin(runtime)
    thread.broken = OSError("disk")
    answer = operator.answered(operator.requested())[1]
    assert isinstance(answer, CommandRefused)
    assert answer.reason == "it failed here: OSError: disk"
    thread.broken = None
    assert isinstance(operator.answered(operator.requested())[1], CommandApplied)
    assert runtime.metrics()["command-errors"] == 1


def test_invalid_command_entries_are_ignored(runtime: Runtime, operator: Operator) -> None:
    begin(runtime)
    operator._client.xadd(COMMANDS, {"body": "nonsense"})
    operator._client.xadd(COMMANDS, {"foreign": b"\xff"})
    assert isinstance(operator.answered(operator.requested())[1], CommandApplied)
    assert runtime.metrics()["commands-malformed"] == 2


def test_commands_are_fetched_again_after_an_outage_of_redis(
    runtime: Runtime, operator: Operator, redis_server: Server
) -> None:
    begin(runtime)
    wait_until(lambda: runtime.metrics()["redis-reachable"])
    redis_server.stop()
    wait_until(lambda: not runtime.metrics()["redis-reachable"])
    redis_server.start()
    # A new stream may count from lower numbers than the lost one.
    resume = operator.requested()
    assert isinstance(operator.answered(resume)[1], CommandApplied)


def test_a_shutdown_ends_the_instance_and_is_answered_last(
    runtime: Runtime, operator: Operator
) -> None:
    thread = begin(runtime)
    shutdown = operator.requested(CommandKind.SHUT_DOWN_APPLICATION, to=runtime)
    assert runtime.termination.wait(PATIENCE_SECONDS) is Ending.SHUT_DOWN
    assert not thread.alive
    assert runtime.instance.status is InstanceStatus.NOT_RUNNING
    assert runtime.exception is None
    assert operator.answered(shutdown) == [
        delivered(shutdown),
        CommandApplied(command=shutdown.command, detail="stopped"),
    ]
    assert [event.type for event in operator._folding.events][-5:] == [
        "CommandDelivered",
        "InstanceStopping",
        "ThreadDied",
        "InstanceStopped",
        "CommandApplied",
    ]
    assert operator._folding.events[-2].caused_by == shutdown.command
    assert not operator._client.exists(redis_keys.heartbeat("flights", runtime.id))


def test_a_policy_is_set_in_every_thread_of_its_pipeline(
    runtime: Runtime, operator: Operator
) -> None:
    first = begin(runtime)
    begin(runtime, lambda thread: setattr(thread, "checkpoint_id", "c2"))
    requested = operator.requested(
        CommandKind.SET_POLICY, to=runtime, task=None, checkpoint=None, stage="produce"
    )
    wait_until(lambda: len(operator.answers(requested)) == 3)
    assert operator.answers(requested) == [
        delivered(requested),
        CommandApplied(command=requested.command),
        CommandApplied(command=requested.command),
    ]
    changed = [each.data for each in operator._folding.events if each.type == "PolicyChanged"]
    assert changed == 2 * [
        PolicyChanged(stage="produce", answer="CONTINUE", actor="ana", reason="because")
    ]
    operator.relay(requested)
    wrong = operator.requested(
        CommandKind.SET_POLICY, to=runtime, task=None, checkpoint=None, stage="process:nope"
    )
    wait_until(lambda: len(operator.answers(wrong)) == 3)
    assert isinstance(operator.answers(wrong)[-1], CommandRefused)
    assert len(operator.answers(requested)) == 3
    first.die(ThreadEnd("gone", finished=True))


def test_a_policy_of_another_instance_or_of_no_running_pipeline_is_not_set(
    runtime: Runtime, operator: Operator, redis_server: Server, tmp_path: Path
) -> None:
    other = connected(redis_server, tmp_path)
    begin(other)
    runtime.open()
    wanted = {"task": None, "checkpoint": None, "stage": "produce"}
    requested = operator.requested(CommandKind.SET_POLICY, to=runtime, **wanted)  # type: ignore[arg-type]  # by name
    assert operator.answered(requested) == [
        delivered(requested),
        CommandRefused(
            command=requested.command, reason="no thread of this instance runs pipeline delays"
        ),
    ]
    other.end(Ending.STOPPED, "enough")
    assert "PolicyChanged" not in [each.type for each in operator._folding.events]


def test_a_pipeline_is_paused_in_each_of_its_threads(runtime: Runtime, operator: Operator) -> None:
    thread = begin(runtime)
    until = datetime.now(UTC) + timedelta(hours=1)
    for kind in (CommandKind.PAUSE_PIPELINE, CommandKind.RESUME_PIPELINE):
        pauses = kind is CommandKind.PAUSE_PIPELINE
        command = operator.requested(
            kind, to=runtime, task=None, checkpoint=None, until=until if pauses else None
        )
        answers = operator.answered(command)
        assert answers == [delivered(command), CommandApplied(command=command.command)]
        operator.relay(command)
        assert thread.pauses[-1] == PipelineCommand(
            pauses=pauses, until=command.until, command=command.command, actor="ana",
            reason="because",
        )  # fmt: skip
    assert len(thread.pauses) == 2


def restart_requested(operator: Operator, runtime: Runtime) -> CommandIssued:
    return operator.requested(CommandKind.RESTART_PIPELINE, to=runtime, task=None, checkpoint=None)


def test_a_command_fetched_during_a_restart_is_applied_by_the_new_run(
    runtime: Runtime, operator: Operator
) -> None:
    runs: list[FakeThread] = []
    may_start = threading.Event()

    def start(thread: FakeThread) -> None:
        runs.append(thread)
        assert len(runs) == 1 or may_start.wait(PATIENCE_SECONDS)

    begin(runtime, start)
    restart = restart_requested(operator, runtime)
    wait_until(lambda: len(runs) == 2)
    waiting = [
        operator.requested(to=runtime),
        operator.requested(CommandKind.PAUSE_PIPELINE, to=runtime, task=None, checkpoint=None),
    ]
    wait_until(lambda: all(operator.answers(each) for each in waiting))
    may_start.set()
    for command in (restart, *waiting):
        assert isinstance(operator.answered(command)[1], CommandApplied)
    assert [len(each.resumes) for each in runs] == [0, 1]
    assert [len(each.pauses) for each in runs] == [0, 1]


def test_a_pipeline_is_restarted_once_and_its_instance_goes_on(
    runtime: Runtime, operator: Operator
) -> None:
    runs: list[FakeThread] = []

    def count(thread: FakeThread) -> None:
        runs.append(thread)
        thread.epoch = len(runs)

    begin(runtime, count)
    first, other = runs[0], begin(runtime, lambda thread: setattr(thread, "pipeline_name", "x"))
    first.busy_seconds = 0.5
    restart = restart_requested(operator, runtime)
    wait_until(lambda: len(runs) == 2 or not first.alive)
    # Between the two runs there is something left to do.
    other.is_idle = True
    assert runtime.termination.wait(0.3) is None
    assert operator.answered(restart) == [
        delivered(restart),
        CommandApplied(command=restart.command, detail="run 2 of delays is RUNNING"),
    ]
    operator.relay(restart)
    operator.answered(operator.requested(checkpoint="c1", to=runtime))
    assert [each.alive for each in runs] == [False, True]
    assert other.alive
    assert runtime.instance.status is InstanceStatus.RUNNING


def test_an_ended_pipeline_is_restarted_and_a_failed_start_is_refused(
    runtime: Runtime, operator: Operator
) -> None:
    runs: list[FakeThread] = []

    def prepare(thread: FakeThread) -> None:
        runs.append(thread)
        thread.cannot_start = OSError("no checkpoint") if len(runs) == 2 else None

    begin(runtime, prepare)
    other = begin(runtime, lambda thread: setattr(thread, "pipeline_name", "x"))
    runs[0].die(ThreadEnd("the query has come to its end", finished=True))
    failed = restart_requested(operator, runtime)
    assert operator.answered(failed)[1] == CommandRefused(
        command=failed.command, reason="delays did not start: OSError: no checkpoint"
    )
    # It had ended before: nothing else failed.
    assert runtime.instance.status is InstanceStatus.RUNNING
    restart = restart_requested(operator, runtime)
    assert isinstance(operator.answered(restart)[1], CommandApplied)
    assert [each.alive for each in runs] == [False, False, True]
    assert other.alive


def test_a_running_pipeline_that_does_not_start_again_is_a_failure(
    runtime: Runtime, operator: Operator
) -> None:
    begin(runtime).busy_seconds = 0.1
    [thread] = runtime.registry.threads
    [slot] = runtime.registry.restartable("delays")

    def broken(outbox: Outbox, on_end: Callable[[ThreadEnd], None]) -> FakeThread:
        raise ValueError("no such table")

    slot.make = broken
    restart = restart_requested(operator, runtime)
    assert runtime.termination.wait(PATIENCE_SECONDS, raises=False) is Ending.FAILED
    assert isinstance(runtime.exception, ValueError)
    assert thread.state is ThreadStatus.DEAD
    assert operator.answered(restart)[1] == CommandRefused(
        command=restart.command, reason="delays did not start: ValueError: no such table"
    )
    operator._folding.take()
    ends = [each.data for each in operator._folding.events if isinstance(each.data, ThreadDied)]
    assert [each.reason for each in ends] == [
        f"restarted by {restart.actor}: {restart.reason}",
        "a new thread could not start: no such table",
    ]
    failure = ends[1].failure
    assert ends[1].recordless and failure is not None
    assert (failure.stage, failure.message) == ("driver", "no such table")


def test_an_operator_restarts_a_pipeline_before_its_replacement(
    redis_server: Server, tmp_path: Path, operator: Operator
) -> None:
    handler = UncaughtHandler(UncaughtAnswer.REPLACE_THREAD)
    runtime = connected(redis_server, tmp_path, on_uncaught=handler)
    runs: list[FakeThread] = []
    begin(runtime, runs.append)
    runs[0].die(ThreadEnd("bad record", exception=ValueError("bad")))
    restart = restart_requested(operator, runtime)
    assert isinstance(operator.answered(restart)[1], CommandApplied)
    assert [each.alive for each in runs] == [False, True]
    # The replacement comes after its first wait of 1 s, and finds a newer run.
    wait_until(lambda: not runtime._dead_threads.replacing)
    assert [each.alive for each in runs] == [False, True]
    runtime.end(Ending.STOPPED, "the test is over")


def test_a_static_or_unknown_pipeline_is_not_restarted(
    runtime: Runtime, operator: Operator
) -> None:
    runtime.open()
    unknown = operator.answered(restart_requested(operator, runtime))[1]
    assert isinstance(unknown, CommandRefused)
    assert unknown.reason == "no thread of this instance runs pipeline delays"
    thread = begin(runtime, lambda thread: setattr(thread, "is_static", True))
    static = operator.answered(restart_requested(operator, runtime))[1]
    assert isinstance(static, CommandRefused)
    assert static.reason == "delays reads a static source once; run its script again"
    assert thread.alive


def test_a_shutdown_during_a_restart_starts_no_new_run(
    runtime: Runtime, operator: Operator
) -> None:
    thread = begin(runtime)
    # Its sink does not return.
    thread.hangs = True
    restart = restart_requested(operator, runtime)
    wait_until(lambda: thread.is_stopping)
    shutdown = operator.requested(CommandKind.SHUT_DOWN_APPLICATION, to=runtime)
    assert runtime.termination.wait(PATIENCE_SECONDS) is Ending.SHUT_DOWN
    assert isinstance(operator.answered(shutdown)[1], CommandApplied)
    assert operator.answered(restart)[1] == CommandRefused(
        command=restart.command, reason="the instance ends"
    )
    assert runtime.registry.threads == (thread,)


def test_a_shutdown_of_another_instance_has_no_effect(
    runtime: Runtime, operator: Operator, redis_server: Server, tmp_path: Path
) -> None:
    other = connected(redis_server, tmp_path)
    begin(runtime)
    begin(other)
    operator.requested(CommandKind.SHUT_DOWN_APPLICATION, to=other)
    assert other.termination.wait(PATIENCE_SECONDS) is Ending.SHUT_DOWN
    assert runtime.termination.wait(0.3) is None


def test_a_shutdown_does_not_wait_for_a_resume(
    redis_server: Server, tmp_path: Path, operator: Operator
) -> None:
    runtime = connected(redis_server, tmp_path, {"error.shutdown.timeout.ms": 500})
    thread = begin(runtime)
    thread.may_apply.clear()
    operator.requested()
    assert thread.applying.wait(PATIENCE_SECONDS)
    operator.requested(CommandKind.SHUT_DOWN_APPLICATION, to=runtime)
    assert runtime.termination.wait(PATIENCE_SECONDS) is Ending.SHUT_DOWN
    thread.may_apply.set()


def test_a_thread_that_does_not_stop_in_time_is_stopped_by_force(
    redis_server: Server, tmp_path: Path, operator: Operator
) -> None:
    runtime = connected(redis_server, tmp_path, {"error.shutdown.timeout.ms": 200})
    begin(runtime, lambda thread: setattr(thread, "busy_seconds", 60))
    shutdown = operator.requested(CommandKind.SHUT_DOWN_APPLICATION, to=runtime)
    assert runtime.termination.wait(PATIENCE_SECONDS) is Ending.SHUT_DOWN
    applied = operator.answered(shutdown)[1]
    assert isinstance(applied, CommandApplied)
    assert applied.detail == "stopped by force: the shutdown timeout was over"


def test_one_instance_is_shut_down_and_another_goes_on(
    runtime: Runtime, operator: Operator, redis_server: Server, tmp_path: Path
) -> None:
    other = connected(redis_server, tmp_path)
    begin(runtime)
    begin(other)
    shutdown = operator.requested(
        CommandKind.SHUT_DOWN_INSTANCE, to=other, task=None, checkpoint=None
    )
    assert other.termination.wait(PATIENCE_SECONDS) is Ending.SHUT_DOWN
    assert operator.answered(shutdown)[1] == CommandApplied(
        command=shutdown.command, detail="stopped"
    )
    assert runtime.termination.wait(0.3) is None


def test_a_forced_shutdown_speeds_up_one_that_waits_for_a_sink(
    runtime: Runtime, operator: Operator
) -> None:
    thread = begin(runtime, lambda thread: setattr(thread, "busy_seconds", 3_600))
    graceful = operator.requested(CommandKind.SHUT_DOWN_APPLICATION, to=runtime)
    wait_until(lambda: thread.is_stopping)
    assert thread.alive
    forced = operator.requested(CommandKind.SHUT_DOWN_APPLICATION, to=runtime, force=True)
    assert runtime.termination.wait(PATIENCE_SECONDS) is Ending.SHUT_DOWN
    for command in (graceful, forced):
        assert operator.answered(command)[1] == CommandApplied(
            command=command.command, detail="stopped by force"
        )


def test_an_unknown_kind_of_command_is_counted_and_the_next_one_applied(
    runtime: Runtime, operator: Operator
) -> None:
    begin(runtime)
    known = operator.requested(checkpoint="elsewhere")
    body = command_codec.encode_command(known).replace(b"RESUME_TASK", b"MOVE_TASK")
    operator._client.xadd(COMMANDS, {"command": str(uuid4()), "body": body})
    assert isinstance(operator.answered(operator.requested())[1], CommandApplied)
    assert runtime.metrics()["commands-malformed"] == 1


def test_a_latched_application_does_not_start(runtime: Runtime, operator: Operator) -> None:
    operator._client.set(STATE, "LATCHED")
    with pytest.raises(StartRefused, match="flights is LATCHED: it was shut down"):
        begin(runtime)
    assert runtime.ending is Ending.SHUT_DOWN
    operator._folding.take()
    started, stopping, stopped = operator._folding.events
    assert (started.type, stopping.type) == ("InstanceStarted", "InstanceStopping")
    assert isinstance(stopped.data, InstanceStopped)
    assert "LATCHED" in stopped.data.reason


def test_an_open_application_starts(runtime: Runtime, operator: Operator) -> None:
    operator._client.set(STATE, "OPEN")
    assert begin(runtime).alive


def test_an_instance_without_a_shutdown_command_stops_when_latched(
    runtime: Runtime, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_poller, "LATCH_GRACE_SECONDS", 0.0)
    begin(runtime)
    operator._client.set(STATE, "LATCHED")
    for _ in range(3):
        operator.requested(checkpoint="elsewhere")
    assert runtime.termination.wait(PATIENCE_SECONDS) is Ending.SHUT_DOWN
    assert runtime.instance.state.reason == "flights is LATCHED"


def test_an_agent_starts_without_redis_and_connects_later(
    runtime: Runtime, operator: Operator, redis_server: Server
) -> None:
    redis_server.stop()
    begin(runtime)
    redis_server.start()
    assert isinstance(operator.answered(operator.requested())[1], CommandApplied)
    assert [event.type for event in operator._folding.events][:2] == [
        "InstanceStarted",
        "ThreadStarted",
    ]


def test_a_heartbeat_names_the_runs(
    frequent_heartbeats: None, runtime: Runtime, operator: Operator
) -> None:
    begin(runtime)
    key = redis_keys.heartbeat("flights", runtime.id)
    heartbeats: list[codec.Heartbeat] = []

    def beaten() -> bool:
        value = operator._client.get(key)
        if isinstance(value, bytes):
            heartbeats.append(msgspec.json.decode(value, type=codec.Heartbeat))
        return bool(heartbeats and heartbeats[-1].runs)

    wait_until(beaten)
    assert heartbeats[-1].status == "RUNNING"
    assert [run.pipeline for run in heartbeats[-1].runs] == ["delays"]


def test_unsent_events_are_sent_by_the_next_instance(
    redis_server: Server, tmp_path: Path, folding: FoldingSide
) -> None:
    redis_server.stop()
    first = connected(redis_server, tmp_path)
    begin(first)
    first.end(Ending.STOPPED, "enough")
    redis_server.start()
    second = connected(redis_server, tmp_path)
    begin(second)
    second.end(Ending.STOPPED, "enough")
    folding.take()
    instances = [event.instance for event in folding.events if event.type.startswith("Instance")]
    assert instances == [first.id] * 3 + [second.id] * 3
    assert {entry.spool for entry in folding.folded} <= {UUID(str(folding.folded[0].spool))}


def test_the_refusal_of_an_ending_thread_is_reported(runtime: Runtime, operator: Operator) -> None:
    thread = begin(runtime)
    thread.ending = True
    answer = operator.answered(operator.requested(task="EWR"))[1]
    assert isinstance(answer, CommandRefused)
    assert answer.reason == "EWR is RUNNING"


def test_a_superseded_run_leaves_the_answer_to_the_newer_one(
    runtime: Runtime, operator: Operator
) -> None:
    thread = begin(runtime)
    thread.broken = Superseded("a newer run owns the checkpoint")
    resume = operator.requested()
    assert thread.applying.wait(PATIENCE_SECONDS)
    thread.broken = None
    operator.answered(operator.requested(task="EWR"))
    assert operator.answers(resume) == [delivered(resume)]

"""What the runtime and a pipeline's thread exchange: commands, events and the thread's end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from arrester.agents.journal.ledger import CommandAnswer
from arrester.agents.runtime.redrive_result import Redriven
from arrester.domain.commands.kinds import TaskAct
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    Body,
    ChosenDeadLetters,
    Event,
    Failure,
    RecordTest,
    ResumeHow,
    Run,
    StageAnswer,
    ThreadDied,
)
from arrester.domain.state.states import PipelinePause, TaskState, ThreadStatus
from arrester.domain.wire.codec import InProgress, RunFlow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from arrester.agents.transport.flow_store import FlowStore


@dataclass(frozen=True, slots=True)
class TaskCommand:
    """A command for one task, from an operator or the author's own code.

    `how` is RETRY (a PAUSED task continues at the failed record), MEND (the same, and `patch`
    changes the record), TEST (the steps run on the record, which `patch` may change, and nothing
    else happens), SKIP (after it: the record becomes a dead letter with `actor` and `reason`), AT
    (at `target`: held records before it become dead letters), RESTART (a DEAD task continues at
    the failed record), or PAUSE (a RUNNING task is paused).
    """

    key: str | None
    _: KW_ONLY
    how: ResumeHow | TaskAct
    #: The position at which the requester saw the task stopped; None: any.
    position: int | None = None
    target: int | None = None
    #: A JSON Patch.
    patch: str | None = None
    command: UUID | None = None
    actor: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if (self.how is ResumeHow.AT) != (self.target is not None):
            raise InvalidValue("target", self.target, "a position, with AT and with nothing else")
        # A record may be tested as it is.
        is_allowed = self.how in (ResumeHow.MEND, TaskAct.TEST)
        is_missing = self.patch is None and self.how is ResumeHow.MEND
        if is_missing or (self.patch is not None and not is_allowed):
            raise InvalidValue(
                "patch", self.patch, "a JSON Patch, with MEND and with nothing else but TEST"
            )


class RecordTestAnswer(CommandAnswer, frozen=True, kw_only=True):
    """The answer to a test of a record. It is not in the journal: a repeated test runs again."""

    test: RecordTest


@dataclass(frozen=True, slots=True)
class PolicyCommand:
    """A command to override the policy of a stage, kept by later runs.

    An answer of None restores the policy of the author and the configuration.
    """

    stage: str
    answer: StageAnswer | None
    _: KW_ONLY
    command: UUID | None = None
    actor: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineCommand:
    """A command to pause the pipeline, or to resume it; later runs stay PAUSED.

    While it is PAUSED, no micro-batch and no held record begins.
    """

    pauses: bool
    #: The end of the pause; None: a person ends it.
    until: datetime | None = None
    command: UUID | None = None
    actor: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveCommand:
    """A command to process dead letters once more, which are read from their destination."""

    #: The chosen dead letters; None: the redrive has ended, and the server keeps them no more.
    dead_letters: ChosenDeadLetters | None
    #: The redrive that it is a part of.
    redrive: UUID | None
    command: UUID
    actor: str
    reason: str | None
    #: The steps run on the one dead letter, and nothing else happens.
    is_test: bool = False


#: What a thread can apply.
ThreadCommand = TaskCommand | PolicyCommand | PipelineCommand | RedriveCommand


@dataclass(frozen=True, slots=True)
class ThreadEnd:
    """How a run ended; passed on once, after everything else, unless `stop` ended it."""

    reason: str
    _: KW_ONLY
    #: The end in one line for the log of the driver, which may quote a record; None: the reason.
    line: str | None = None
    exception: BaseException | None = None
    failure: Failure | None = None
    #: No failed record has reported the failure; with its stack trace, if it has one.
    recordless: bool = False
    stack: str | None = None
    #: A newer run owns the checkpoint: no handler is called, no thread replaced.
    superseded: bool = False
    #: The query finished (`availableNow`) without a failure.
    finished: bool = False

    @property
    def event(self) -> ThreadDied:
        """The event of this end."""
        return ThreadDied(
            reason=self.reason,
            failure=self.failure,
            superseded=self.superseded,
            recordless=self.recordless,
        )

    @property
    def body(self) -> Body | None:
        """The body of this event."""
        return None if self.stack is None else Body(stack=self.stack)


#: Return an exception of the driver as a failure, and the body of its event.
DescribeFailure = Callable[[BaseException], tuple[Failure, Body]]


class Outbox(Protocol):
    """Where a thread puts its events: the spool.

    Durable, ordered and idempotent by batch ID. Nothing after it can stop or slow a pipeline.
    """

    @property
    def flow(self) -> FlowStore | None:
        """Where it stores what flows through its runs; None: nowhere."""
        ...

    def put(self, batch_id: UUID, events: Sequence[Event]) -> None:
        """Store `events` as one batch; the same ID again changes nothing."""
        ...

    def is_confirmed(self, batch_id: UUID) -> bool:
        """Whether the server has confirmed the batch."""
        ...

    def is_stored(self, batch_id: UUID) -> bool:
        """Whether the batch is stored and survives the process; False means unknown."""
        ...


class Thread(Protocol):
    """One run of a pipeline, as the runtime uses it."""

    @property
    def pipeline_name(self) -> str: ...

    @property
    def checkpoint_id(self) -> str: ...

    @property
    def state(self) -> ThreadStatus: ...

    @property
    def epoch(self) -> int: ...

    @property
    def is_global(self) -> bool:
        """Whether the pipeline has one task only, the global one."""
        ...

    @property
    def is_static(self) -> bool:
        """Whether its source is a static DataFrame, which is read once."""
        ...

    @property
    def pause(self) -> PipelinePause | None:
        """The pause of its pipeline; None: it is not PAUSED."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether nothing happens any more without a command."""
        ...

    @property
    def in_progress(self) -> InProgress | None:
        """What it processes now; None between two inputs."""
        ...

    @property
    def rows_per_second(self) -> float | None:
        """The rows per second of the last micro-batch, or chunk of held records while some are
        left; None if unknown."""
        ...

    @property
    def flow(self) -> RunFlow | None:
        """What flows through it now; None if it is not measured."""
        ...

    @property
    def was_finished(self) -> bool:
        """Whether an earlier run had finished the pass over its static source."""
        ...

    @property
    def is_end_handled(self) -> bool:
        """Whether it has ended, and `on_end`, if it had to be called, has returned."""
        ...

    def apply(self, command: ThreadCommand) -> CommandAnswer:
        """Apply or refuse a command; the answer is an event of the thread."""
        ...

    def redrive(self, dead_letters: DataFrame, *, actor: str | None, reason: str) -> Redriven:
        """Process dead letters once more."""
        ...

    def answer_to(self, command: UUID) -> CommandAnswer | None:
        """Return the earlier answer to a command, from any run of the checkpoint."""
        ...

    def stop(self, reason: str, *, timeout_seconds: float) -> bool:
        """End the run at the next boundary; return whether it has ended there within the time."""
        ...

    def force_stop(self) -> None:
        """Let a stop, present or future, cancel Spark jobs in progress at once."""
        ...

    def task_weight(self) -> int | None:
        """Return the weight of its tasks that are not RUNNING; None while events are
        unpublished."""
        ...

    def report(self) -> None:
        """Report the state of its tasks soon."""
        ...

    def tasks(self) -> list[TaskState]: ...


def run_of(thread: Thread) -> Run:
    """Return the run that a thread executes."""
    return Run(pipeline=thread.pipeline_name, checkpoint=thread.checkpoint_id, epoch=thread.epoch)

"""Events of commands, and their kinds."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from msgspec import Meta

from arrester.domain.events.parts import Count, Data, Failure, Moment, Position
from arrester.domain.events.threads import StageAnswer
from arrester.domain.python_versions import StrEnum


class CommandKind(StrEnum):
    """The kinds of commands."""

    RESUME_TASK = "RESUME_TASK"
    SKIP_RECORD = "SKIP_RECORD"
    RESUME_AT = "RESUME_AT"
    #: The record that stopped the task is changed by a JSON Patch, and the task resumes with it.
    EDIT_RECORD = "EDIT_RECORD"
    #: The steps run once on the record that stopped the task, which a JSON Patch may change, and
    #: nothing else happens.
    TEST_RECORD = "TEST_RECORD"
    PAUSE_TASK = "PAUSE_TASK"
    RESTART_TASK = "RESTART_TASK"
    DISMISS_TASK = "DISMISS_TASK"
    SET_POLICY = "SET_POLICY"
    RESTART_PIPELINE = "RESTART_PIPELINE"
    PAUSE_PIPELINE = "PAUSE_PIPELINE"
    RESUME_PIPELINE = "RESUME_PIPELINE"
    #: The server issues them task by task: rollouts.
    RESUME_TASKS = "RESUME_TASKS"
    SKIP_RECORDS = "SKIP_RECORDS"
    EDIT_RECORDS = "EDIT_RECORDS"
    RESTART_TASKS = "RESTART_TASKS"
    #: The server issues REDRIVE_RECORDS for some of its dead letters after the other.
    REDRIVE = "REDRIVE"
    REDRIVE_RECORDS = "REDRIVE_RECORDS"
    #: The steps run once on a dead letter, which a JSON Patch may change, and nothing else happens.
    TEST_DEAD_LETTER = "TEST_DEAD_LETTER"
    SHUT_DOWN_APPLICATION = "SHUT_DOWN_APPLICATION"
    SHUT_DOWN_INSTANCE = "SHUT_DOWN_INSTANCE"
    START_APPLICATION = "START_APPLICATION"


class Rollout(Data, frozen=True, kw_only=True):
    """The tasks of a rollout, and how its commands for them are issued."""

    #: The error group that stopped the tasks; None: all stopped tasks of the application.
    fingerprint: str | None = None
    #: The number of tasks when it was requested.
    tasks: Count
    #: One task, 10 % of them and the rest, each wave after the one before; else all at once.
    waves: bool = True
    #: The time after a wave in which none of its tasks may stop again.
    observe_seconds: Count = 30
    #: The most commands of waves in a minute.
    tasks_per_minute: Count = 600


class Redrive(Data, frozen=True, kw_only=True):
    """The dead letters of a redrive, and how they are processed once more."""

    #: The number of dead letters that were chosen; those of a redrive keep their order.
    records: Annotated[Count, Meta(description="How many were chosen.")]
    #: One record, 10 % of them and the rest, each wave after the one before; else all at once.
    waves: bool = True
    #: The most records in a minute; None: as fast as the pipeline processes them.
    records_per_minute: Count | None = None
    #: The JSON Patch that changes each record; None: unchanged.
    patch: Annotated[str | None, Meta(description="The JSON Patch of each record.")] = None


class RedriveSlice(Data, frozen=True, kw_only=True):
    """The dead letters of a redrive that one command is for."""

    #: The number of the first one, from 0.
    first: Count
    count: Count


class ChosenDeadLetters(Data, frozen=True, kw_only=True):
    """Dead letters, as an agent finds them at their destination."""

    #: 16 bytes each.
    ids: bytes
    #: They were decided in this time.
    since: Moment
    until: Moment
    patch: str | None = None


class CommandIssued(Data, frozen=True, kw_only=True, tag=True):
    """A command was requested by a person, or in their name over the API."""

    command: UUID
    kind: CommandKind
    actor: str
    reason: str | None = None
    #: For a task command and a redrive; and for SET_POLICY and commands for a pipeline, which apply
    #: on every checkpoint of it.
    pipeline: str | None = None
    checkpoint: str | None = None
    task: str | None = None
    #: The position at which the task was stopped when the command was made: it applies to this
    #: record only.
    position: Position | None = None
    #: For RESUME_AT: the position at which the task continues.
    target: Position | None = None
    #: For EDIT_RECORD, EDIT_RECORDS and tests: the JSON Patch.
    patch: str | None = None
    #: For SET_POLICY: the answer to failures of the stage; None: the author's.
    stage: str | None = None
    answer: StageAnswer | None = None
    #: For a pause: when the server resumes the task, or the agent the pipeline; None: a person
    #: does.
    until: Moment | None = None
    #: For a shutdown: requested by a failure, and every instance ends in ERROR.
    error: bool = False
    #: For a rollout.
    rollout: Rollout | None = None
    #: For a REDRIVE, and for each REDRIVE_RECORDS that it issues; a TEST_DEAD_LETTER has a slice.
    redrive: Redrive | None = None
    slice: RedriveSlice | None = None
    #: Of a command with a slice, only as the agent receives it.
    dead_letters: ChosenDeadLetters | None = None
    #: The rollout or redrive that issued it.
    part_of: UUID | None = None
    #: For a shutdown: Spark jobs in progress are cancelled.
    force: bool = False
    #: The instances that have to answer; empty for a task command whose instance is not known.
    instances: tuple[UUID, ...] = ()
    expires_at: Moment


class CommandDelivered(Data, frozen=True, kw_only=True, tag=True):
    """An instance has fetched the command."""

    command: UUID


class RecordTest(Data, frozen=True, kw_only=True):
    """The result of a test of a record: the steps ran on it once, and the sink was not called."""

    #: The rows that the sink would receive; 0 if it fails, or if a step leaves it out.
    rows: Annotated[Count, Meta(description="The rows that the sink would receive.")] = 0
    #: Why it fails; None: it passes.
    failure: Annotated[Failure | None, Meta(description="Why it fails; null: it passes.")] = None


class CommandApplied(Data, frozen=True, kw_only=True, tag=True):
    """An instance, or the server if there is none, has applied the command."""

    command: UUID
    detail: str | None = None
    #: For TEST_RECORD and TEST_DEAD_LETTER.
    test: RecordTest | None = None


class CommandRefused(Data, frozen=True, kw_only=True, tag=True):
    """The state forbids the command; nothing was changed."""

    command: UUID
    reason: str


class CommandExpired(Data, frozen=True, kw_only=True, tag=True):
    """The command was not applied in time, or the instance is gone."""

    command: UUID
    reason: str
    #: The instance whose part expired; None for the whole command.
    of_instance: UUID | None = None


class CommandCancelled(Data, frozen=True, kw_only=True, tag=True):
    """A person, or a stronger command, cancelled the command before it was applied."""

    command: UUID
    reason: str
    actor: str | None = None


CommandEvent = (
    CommandIssued
    | CommandDelivered
    | CommandApplied
    | CommandRefused
    | CommandExpired
    | CommandCancelled
)

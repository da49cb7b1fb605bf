"""The kinds of commands, one row each: server, agent, REST, command line and pages read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal
from uuid import UUID

from arrester.domain.commands import recipients as to
from arrester.domain.commands.refusals import tasks as task_refusals
from arrester.domain.commands.request import CommandRequest
from arrester.domain.events import CommandKind, ResumeHow
from arrester.domain.python_versions import StrEnum
from arrester.domain.state.states import TaskState
from arrester.domain.state.stream_state import StreamState


class Subject(StrEnum):
    """The subject of a command. A request has to name it."""

    TASK = "TASK"
    #: The stopped tasks of an application or of an error group: a rollout.
    TASKS = "TASKS"
    #: A stage of a pipeline.
    STAGE = "STAGE"
    PIPELINE = "PIPELINE"
    #: Dead letters of one pipeline and checkpoint.
    DEAD_LETTERS = "DEAD_LETTERS"
    APPLICATION = "APPLICATION"
    INSTANCE = "INSTANCE"


class AppliedBy(StrEnum):
    """Who applies a command."""

    #: The agent of each recipient.
    AGENT = "AGENT"
    #: The server, when it issues the command.
    SERVER = "SERVER"
    #: The server, by further commands.
    PARTS = "PARTS"


class TaskAct(StrEnum):
    """What an agent does with a task, if it does not let the task continue (`ResumeHow`)."""

    PAUSE = "PAUSE"
    #: Run the steps on its failed record; nothing changes.
    TEST = "TEST"


#: Fields of a request besides its subject. `key`: also names a task that is not known yet.
Field = Literal["key", "target", "patch", "answer", "until", "duration", "force"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A kind of command."""

    kind: CommandKind
    #: The name of the command on pages.
    label: str
    subject: Subject
    applied_by: AppliedBy
    #: Return the instances that have to answer.
    recipients: Callable[[CommandRequest, StreamState], list[UUID]]
    #: Whether a request needs a reason: to skip or change a record, stop work or hide a task.
    needs_reason: bool
    #: The first version of agents that know the kind; 1 if none receives it.
    since: int
    fields: tuple[Field, ...] = ()
    #: Whether instances end.
    is_shutdown: bool = False
    #: The kind of the further commands, if it is applied by PARTS.
    part: CommandKind | None = None
    #: What an agent does with the task; None: it does nothing with a task.
    how: ResumeHow | TaskAct | None = None
    #: The name in URLs of pages and of the dialog's template; empty: it is neither for a task nor
    #: for an application.
    slug: str = ""

    @property
    def latches(self) -> bool:
        """Whether the application is LATCHED by it."""
        return self.is_shutdown and self.subject is Subject.APPLICATION

    @property
    def has_dialog(self) -> bool:
        """Whether pages ask for a reason or further fields, or show the effects."""
        return self.subject is not Subject.TASK or self.needs_reason or bool(self.fields)


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskKind(Kind):
    """A kind of command for one task."""

    how: ResumeHow | TaskAct | None
    slug: str
    #: The icon of the button.
    icon: str
    #: Return why the state of the task forbids it: one rule for the server and for agents.
    refusal: Callable[[TaskState], str | None]
    subject: Subject = Subject.TASK
    applied_by: AppliedBy = AppliedBy.AGENT
    recipients: Callable[[CommandRequest, StreamState], list[UUID]] = to.instance_of_run


_ROWS: Final[tuple[Kind, ...]] = (
    TaskKind(
        kind=CommandKind.RESUME_TASK, label="Resume task", slug="resume", icon="play",
        how=ResumeHow.RETRY, refusal=task_refusals.resume_refusal, needs_reason=False, since=1,
    ),
    TaskKind(
        kind=CommandKind.SKIP_RECORD, label="Skip record and resume", slug="skip", icon="arrow",
        how=ResumeHow.SKIP, refusal=task_refusals.resume_refusal, needs_reason=True, since=1,
    ),
    TaskKind(
        kind=CommandKind.RESUME_AT, label="Resume at position", slug="resume-at", icon="arrow",
        how=ResumeHow.AT, refusal=task_refusals.resume_refusal, needs_reason=True, since=1,
        fields=("target",),
    ),
    TaskKind(
        kind=CommandKind.EDIT_RECORD, label="Edit record and resume", slug="mend", icon="arrow",
        how=ResumeHow.MEND, refusal=task_refusals.resume_refusal, needs_reason=True, since=4,
        fields=("patch",),
    ),
    TaskKind(
        kind=CommandKind.TEST_RECORD, label="Test record", slug="test-record", icon="play",
        how=TaskAct.TEST, refusal=task_refusals.resume_refusal, needs_reason=False, since=6,
        fields=("patch",),
    ),
    TaskKind(
        kind=CommandKind.PAUSE_TASK, label="Pause task", slug="pause", icon="pause",
        how=TaskAct.PAUSE, refusal=task_refusals.pause_refusal, needs_reason=False, since=1,
        fields=("key", "until", "duration"),
    ),
    TaskKind(
        kind=CommandKind.RESTART_TASK, label="Restart task", slug="restart", icon="play",
        how=ResumeHow.RESTART, refusal=task_refusals.restart_refusal, needs_reason=False, since=1,
    ),
    TaskKind(
        kind=CommandKind.DISMISS_TASK, label="Dismiss task", slug="dismiss-task", icon="cross",
        how=None, refusal=task_refusals.dismiss_refusal, needs_reason=True, since=1,
        applied_by=AppliedBy.SERVER,
    ),
    Kind(
        kind=CommandKind.RESUME_TASKS, label="Resume tasks",
        subject=Subject.TASKS, applied_by=AppliedBy.PARTS, part=CommandKind.RESUME_TASK,
        recipients=to.no_instance, needs_reason=False, since=1,
    ),
    Kind(
        kind=CommandKind.SKIP_RECORDS, label="Skip records and resume tasks",
        subject=Subject.TASKS, applied_by=AppliedBy.PARTS, part=CommandKind.SKIP_RECORD,
        recipients=to.no_instance, needs_reason=True, since=1,
    ),
    Kind(
        kind=CommandKind.EDIT_RECORDS, label="Edit records and resume tasks",
        subject=Subject.TASKS, applied_by=AppliedBy.PARTS, part=CommandKind.EDIT_RECORD,
        recipients=to.no_instance, needs_reason=True, since=1, fields=("patch",),
    ),
    Kind(
        kind=CommandKind.RESTART_TASKS, label="Restart tasks",
        subject=Subject.TASKS, applied_by=AppliedBy.PARTS, part=CommandKind.RESTART_TASK,
        recipients=to.no_instance, needs_reason=False, since=1,
    ),
    Kind(
        kind=CommandKind.SET_POLICY, label="Set policy",
        subject=Subject.STAGE, applied_by=AppliedBy.AGENT,
        recipients=to.instances_with_runs, needs_reason=True, since=1, fields=("answer",),
    ),
    Kind(
        kind=CommandKind.RESTART_PIPELINE, label="Restart pipeline",
        subject=Subject.PIPELINE, applied_by=AppliedBy.AGENT,
        recipients=to.instances_that_can_restart, needs_reason=True, since=2,
    ),
    Kind(
        kind=CommandKind.PAUSE_PIPELINE, label="Pause pipeline",
        subject=Subject.PIPELINE, applied_by=AppliedBy.AGENT,
        recipients=to.instances_with_runs, needs_reason=False, since=5,
        fields=("until", "duration"),
    ),
    Kind(
        kind=CommandKind.RESUME_PIPELINE, label="Resume pipeline",
        subject=Subject.PIPELINE, applied_by=AppliedBy.AGENT,
        recipients=to.instances_with_runs, needs_reason=False, since=5,
    ),
    Kind(
        kind=CommandKind.SHUT_DOWN_APPLICATION, label="Shut down application", slug="shut-down",
        subject=Subject.APPLICATION, applied_by=AppliedBy.AGENT, is_shutdown=True,
        recipients=to.live_instances, needs_reason=True, since=1, fields=("force",),
    ),
    Kind(
        kind=CommandKind.SHUT_DOWN_INSTANCE, label="Shut down instance",
        subject=Subject.INSTANCE, applied_by=AppliedBy.AGENT, is_shutdown=True,
        recipients=to.named_instance, needs_reason=True, since=2, fields=("force",),
    ),
    Kind(
        kind=CommandKind.START_APPLICATION, label="Start application", slug="start",
        subject=Subject.APPLICATION, applied_by=AppliedBy.SERVER,
        recipients=to.no_instance, needs_reason=False, since=1,
    ),
    Kind(
        kind=CommandKind.REDRIVE, label="Redrive dead letters",
        subject=Subject.DEAD_LETTERS, applied_by=AppliedBy.PARTS, part=CommandKind.REDRIVE_RECORDS,
        recipients=to.no_instance, needs_reason=True, since=1,
    ),
    Kind(
        kind=CommandKind.REDRIVE_RECORDS, label="Redrive records",
        subject=Subject.DEAD_LETTERS, applied_by=AppliedBy.AGENT,
        recipients=to.instance_of_run, needs_reason=False, since=3,
    ),
    Kind(
        kind=CommandKind.TEST_DEAD_LETTER, label="Test dead letter",
        subject=Subject.DEAD_LETTERS, applied_by=AppliedBy.AGENT,
        recipients=to.instance_of_run, needs_reason=False, since=6, fields=("patch",),
    ),
)  # fmt: skip
KINDS: Final[Mapping[CommandKind, Kind]] = {each.kind: each for each in _ROWS}
TASK_KINDS: Final[Mapping[CommandKind, TaskKind]] = {
    each.kind: each for each in _ROWS if isinstance(each, TaskKind)
}
#: The kind of the command of each task, by the kind of the rollout.
ROLLOUTS: Final[Mapping[CommandKind, CommandKind]] = {
    each.kind: each.part for each in _ROWS if each.subject is Subject.TASKS and each.part
}
#: The kinds that agents do not receive, because the server issues further commands.
IN_PARTS: Final = tuple(each.kind for each in _ROWS if each.applied_by is AppliedBy.PARTS)
#: What these do with the record that stopped the task.
NEEDS_FAILED_RECORD: Final[Mapping[object, str]] = {
    ResumeHow.SKIP: "skip",
    ResumeHow.MEND: "change",
    TaskAct.TEST: "test",
}
#: The kinds that change nothing: they are no step in the life of their task.
TESTS: Final = (CommandKind.TEST_RECORD, CommandKind.TEST_DEAD_LETTER)


def skips_records(kind: CommandKind) -> bool:
    """Whether a command, also a rollout, skips records: they become dead letters, or are lost."""
    return KINDS[ROLLOUTS.get(kind, kind)].how in (ResumeHow.SKIP, ResumeHow.AT)


def changes_records(kind: CommandKind) -> bool:
    """Whether a command, also a rollout, changes the record at which each task stopped."""
    return KINDS[ROLLOUTS.get(kind, kind)].how is ResumeHow.MEND

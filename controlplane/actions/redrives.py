"""Redrives: choose dead letters that wait, and let their pipeline process them once more."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta
from msgspec.structs import replace

from arrester.controlplane import access
from arrester.controlplane.actions.commands import issue_command
from arrester.controlplane.actions.rollouts import end, part_events
from arrester.controlplane.actions.transaction import advance, new_id
from arrester.controlplane.views import projections, redrive_progress, row_mapping
from arrester.controlplane.views.dead_letter_selection import (
    DeadLetterFilter,
    OpenDeadLetter,
    open_dead_letters,
)
from arrester.domain.commands.recipients import instance_of_run
from arrester.domain.commands.redrive import (
    MAX_REDRIVEN,
    WaitingRecords,
    check_redrive,
    next_redrive_step,
)
from arrester.domain.commands.refusals.commands import refusal
from arrester.domain.commands.request import CommandRequest
from arrester.domain.commands.request_checks import check
from arrester.domain.commands.rollout import Finish, Issue, Stop, Wait
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    CommandApplied,
    CommandCancelled,
    CommandKind,
    Event,
    Redrive,
    RedriveSlice,
)
from arrester.domain.identity import uuids
from arrester.domain.identity.names import TaskId
from arrester.domain.json_patch import JsonPatch
from arrester.domain.state.live_runs import live
from arrester.domain.state.states import CommandState, if_set
from arrester.domain.state.stream_state import StreamState


class RedrivePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a redrive would process once more."""

    pipeline: str
    checkpoint: str
    records: int
    more: Annotated[
        bool,
        Meta(description=f"More match: a redrive takes {MAX_REDRIVEN:,}, those decided first."),
    ]
    tasks: Annotated[int, Meta(description="The number of tasks of these records.")]
    #: Those that would wait for stopped tasks.
    waiting: WaitingRecords
    refused: Annotated[
        str | None, Meta(description="Why the state forbids the redrive; null: it does not.")
    ]


def plan_redrive(
    application: str,
    wanted: DeadLetterFilter,
    *,
    ids: Collection[str] | None = None,
    redrive: Redrive = Redrive(records=0),  # noqa: B008 (frozen)
) -> RedrivePlan:
    """Return what a redrive would do, and change nothing. Raises what `start_redrive` raises."""
    access.require(application)
    selected, stopped, more = _select(application, wanted, ids)
    requested = _request(selected, redrive, actor="", reason=None)
    state = projections.current_states(application, pipelines=[selected[0].pipeline])
    return RedrivePlan(
        pipeline=selected[0].pipeline,
        checkpoint=selected[0].checkpoint,
        records=len(selected),
        more=more,
        tasks=len({each.task for each in selected}),
        waiting=redrive_progress.would_wait(selected, stopped),
        refused=refusal(requested, state),
    )


def no_redrive(application: str, pipeline: str | None) -> str | None:
    """Return why no dead letter of an application, or of a pipeline of it, can be redriven now.

    None: those of a live checkpoint can.
    """
    access.require(application)
    threads = live(row_mapping.THREADS.load("application = %s", [application]))
    wanted = [each for each in threads if pipeline in (None, each.pipeline)]
    state = projections.current_states(application, pipelines=[each.pipeline for each in wanted])
    reasons = [
        refusal(_requested(Redrive(records=1), each.pipeline, each.checkpoint), state)
        for each in wanted
    ]
    return None if not reasons or None in reasons else reasons[0]


def refused_redrives(tasks: Collection[TaskId]) -> dict[TaskId, str]:
    """Return those of some tasks whose dead letters cannot be redriven now, with the reasons."""
    found: dict[TaskId, str] = {}
    for application in sorted({each.application for each in tasks}):
        own = [each for each in tasks if each.application == application]
        state = projections.current_states(application, pipelines={each.pipeline for each in own})
        for each in own:
            requested = _requested(Redrive(records=1), each.pipeline, each.checkpoint)
            reason = refusal(requested, state)
            if reason is not None:
                found[each] = reason
    return found


@access.acts
def start_redrive(
    application: str,
    wanted: DeadLetterFilter,
    *,
    actor: str,
    reason: str | None,
    ids: Collection[str] | None = None,
    redrive: Redrive = Redrive(records=0),  # noqa: B008 (frozen)
    command: UUID | None = None,
) -> CommandState:
    """Process the dead letters that match and wait once more; with `ids`, only these.

    They are of one pipeline and one checkpoint. `redrive` is how they are processed; their number
    follows. A repetition with the same id changes nothing. Raises InvalidValue if none waits, if
    they are of several pipelines or checkpoints, or for an invalid patch or rate; CommandForbidden
    if no live instance runs the pipeline, or if another redrive of it is in progress.
    """
    id = command or new_id()
    for known in row_mapping.COMMANDS.load("id = %s", [id]):
        if (known.kind, known.application) != (CommandKind.REDRIVE, application):
            raise InvalidValue("id", str(id), "an id that no other command has")
        return known
    selected, _, _ = _select(application, wanted, ids)
    requested = _request(selected, redrive, id=id, actor=actor, reason=reason)
    check(requested, now=datetime.now(UTC))
    redrive_progress.keep(application, id, selected)
    issued = issue_command(application, requested)
    advance_redrive(issued, now=datetime.now(UTC))
    (issued,) = row_mapping.COMMANDS.load("id = %s", [id])
    return issued


@access.acts
def test_dead_letter(
    application: str,
    id: str,
    *,
    actor: str,
    patch: str | None = None,
    command: UUID | None = None,
) -> CommandState:
    """Let the pipeline run its steps once on a dead letter that waits, changed by the patch.

    A test in progress of the same dead letter with the same patch is not repeated. Raises
    InvalidValue if the dead letter does not wait, or for an invalid patch; CommandForbidden if no
    live instance runs the pipeline, or another test of it is in progress.
    """
    new = command or new_id()
    text = None if patch is None else JsonPatch(patch).text
    where = "id = %s OR (application = %s AND open AND kind = %s)"
    kind = CommandKind.TEST_DEAD_LETTER
    for known in row_mapping.COMMANDS.load(where, [new, application, kind.value]):
        if known.id == new and (known.kind, known.application) != (kind, application):
            raise InvalidValue("id", str(new), "an id that no other command has")
        kept = redrive_progress.chosen(known)
        is_same = if_set(known.patch) == text and kept is not None and kept.ids.hex() == id
        if known.id == new or is_same:
            return known
    selected, _, _ = _select(application, DeadLetterFilter(application=application), [id])
    requested = _test_request(selected[0].pipeline, selected[0].checkpoint)
    requested = replace(requested, command=new, actor=actor, patch=text)
    check(requested, now=datetime.now(UTC))
    redrive_progress.keep(application, new, selected)
    return issue_command(application, requested)


def no_test(application: str, plan: RedrivePlan) -> str | None:
    """Return why the dead letter of a plan cannot be tested now, or None."""
    access.require(application)
    state = projections.current_states(application, pipelines=[plan.pipeline])
    return refusal(_test_request(plan.pipeline, plan.checkpoint), state)


def _test_request(pipeline: str, checkpoint: str) -> CommandRequest:
    return CommandRequest(
        command=new_id(),
        kind=CommandKind.TEST_DEAD_LETTER,
        actor="",
        pipeline=pipeline,
        checkpoint=checkpoint,
        slice=RedriveSlice(first=0, count=1),
    )


def advance_redrives(application: str, *, now: datetime) -> None:
    """Advance the redrives of an application that are in progress, each by one step."""
    for command in row_mapping.COMMANDS.load(
        "application = %s AND open AND kind = %s", [application, CommandKind.REDRIVE.value]
    ):
        advance_redrive(command, now=now)
    redrive_progress.forget_ended(application, now=now)


def advance_redrive(command: CommandState, *, now: datetime) -> None:
    """Make the next step of a redrive. Any number of processes may do so at the same time.

    The step follows from stored states and is one transaction. The id of a command that it issues
    follows from the redrive and the number of commands before it. A command that has expired, such
    as one for a killed instance, is repeated: an agent takes each dead letter once.
    """
    if command.status.final or command.redrive is UNSET:
        return
    progress = redrive_progress.progress_of(command)
    match next_redrive_step(command.redrive, progress, now):
        case Wait():
            return
        case Issue(number=count):
            part = RedriveSlice(first=progress.issued, count=count)
            _issue(command, part, number=progress.commands, now=now)
        case Finish(detail=detail):
            end(command, CommandApplied(command=command.id, detail=detail), now)
        case Stop(reason=reason):
            end(command, CommandCancelled(command=command.id, reason=reason), now)


def _issue(command: CommandState, part: RedriveSlice, *, number: int, now: datetime) -> None:
    requested = CommandRequest(
        command=uuids.part_of(command.id, str(number)),
        kind=CommandKind.REDRIVE_RECORDS,
        actor=command.actor,
        reason=command.reason,
        pipeline=command.pipeline,
        checkpoint=if_set(command.checkpoint),
        slice=part,
        part_of=command.id,
    )

    def rule(state: StreamState) -> list[Event]:
        # The lock of the stream is held. Another process may have issued the command before.
        if state.commands[command.id].status.final or requested.command in state.commands:
            return []
        if not instance_of_run(requested, state):
            return []  # It goes on when an instance runs the pipeline again.
        return part_events(command, requested, state, now=now)

    advance(
        command.application,
        rule,
        commands=[command.id, requested.command],
        pipelines=[command.pipeline or ""],
    )


def _select(
    application: str, wanted: DeadLetterFilter, ids: Collection[str] | None
) -> tuple[list[OpenDeadLetter], set[UUID], bool]:
    """Return the dead letters of a redrive, those of stopped tasks last, these tasks, and whether
    more match.

    What waits for a stopped task is no test of a change: the first waves have the others.
    """
    if ids is not None and len(ids) > MAX_REDRIVEN:
        raise InvalidValue("ids", len(ids), f"at most {MAX_REDRIVEN:,} dead letters")
    own = replace(wanted, application=application)
    found = open_dead_letters(own, ids=ids, limit=MAX_REDRIVEN + 1)
    if not found:
        raise InvalidValue("dead_letters", "none that waits", "dead letters that wait")
    places = sorted({(each.pipeline, each.checkpoint) for each in found})
    if len(places) > 1:
        names = ", ".join(f"{pipeline} at {checkpoint}" for pipeline, checkpoint in places[:3])
        raise InvalidValue("dead_letters", names, "those of one pipeline and one checkpoint")
    chosen = found[:MAX_REDRIVEN]
    stopped = redrive_progress.stopped_tasks({each.task for each in chosen})
    in_order = sorted(chosen, key=lambda each: each.task in stopped)
    return in_order, stopped, len(found) > MAX_REDRIVEN


def _request(
    selected: Sequence[OpenDeadLetter],
    redrive: Redrive,
    *,
    actor: str,
    reason: str | None,
    id: UUID | None = None,
) -> CommandRequest:
    patch = None if redrive.patch is None else JsonPatch(redrive.patch).text
    redrive = replace(redrive, records=len(selected), patch=patch)
    check_redrive(redrive)
    first = selected[0]
    requested = _requested(redrive, first.pipeline, first.checkpoint)
    return replace(requested, command=id or new_id(), actor=actor, reason=reason)


def _requested(redrive: Redrive, pipeline: str, checkpoint: str) -> CommandRequest:
    return CommandRequest(
        command=new_id(),
        kind=CommandKind.REDRIVE,
        actor="",
        pipeline=pipeline,
        checkpoint=checkpoint,
        redrive=redrive,
    )

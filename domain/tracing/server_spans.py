"""The spans of the server: folds of reported failures and of answers, and issued commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice, repeat
from typing import NamedTuple, cast, get_args
from uuid import UUID

from arrester.domain.events import (
    CommandEvent,
    CommandExpired,
    CommandIssued,
    CommandRefused,
    FailuresCounted,
    RecordFailed,
    Run,
    StoredEvent,
)
from arrester.domain.state.states import CommandState, TaskState
from arrester.domain.tracing import ids
from arrester.domain.tracing.ids import SpanId
from arrester.domain.tracing.spans import stop_of
from arrester.domain.tracing.tracer import Attribute, Span
from arrester.domain.wire.failure_columns import Stored, StoredFailures, moment

#: The most spans of one fold, or of one act on many tasks.
MOST_SPANS = 200
_OF_COMMANDS = frozenset(get_args(CommandEvent))


class _Folded(NamedTuple):
    """What a fold has stored about one span: its first event, and how many."""

    parent: SpanId
    #: `flights@283`
    event: str
    type: str
    error: str | None = None


def of_commands(stored: Iterable[Stored]) -> list[tuple[StoredEvent, CommandEvent]]:
    """Return the events of commands, each with its data."""
    return [
        (each, cast(CommandEvent, each.event.data))
        for each in stored
        if isinstance(each, StoredEvent) and each.event.data.__class__ in _OF_COMMANDS
    ]


def event_name(stored: Stored) -> str:
    """Return the id of the first event, as in `flights@283`."""
    return f"{stored.application}@{stored.sequence}"


def fold_spans(
    stored: Sequence[Stored],
    commands: Mapping[UUID, CommandState],
    *,
    began: datetime,
    ended: datetime,
) -> Iterator[Span]:
    """Yield the spans of a committed fold: one for each decision, stopped task and answer."""
    counts = Counter(_folded(stored))
    for folded, count in islice(counts.items(), MOST_SPANS):
        yield _fold(folded, count, began=began, ended=ended)
    yield from command_spans(stored, commands, {}, began=began, ended=ended)


def command_spans(
    stored: Iterable[Stored],
    commands: Mapping[UUID, CommandState],
    tasks: Mapping[str, TaskState],
    *,
    began: datetime,
    ended: datetime,
) -> Iterator[Span]:
    """Yield the spans of issued commands, and of further events of commands.

    `commands` are those after the events, `tasks` those before them.
    """
    events = of_commands(stored)[:MOST_SPANS]
    issued = {data.command for _, data in events if isinstance(data, CommandIssued)}
    refused = {data.command: data.reason for _, data in events if isinstance(data, CommandRefused)}
    for each, data in events:
        state = commands.get(data.command)
        if state is None:
            continue
        if isinstance(data, CommandIssued):
            why, name = refused.get(data.command), event_name(each)
            yield _issued(state, tasks, event=name, refused=why, began=began, ended=ended)
        elif data.command not in issued:
            error = data.reason if isinstance(data, CommandRefused | CommandExpired) else None
            folded = _Folded(command_id(state), event_name(each), each.event.type, error)
            yield _fold(folded, 1, began=began, ended=ended)


def _issued(
    state: CommandState,
    tasks: Mapping[str, TaskState],
    *,
    event: str,
    refused: str | None,
    began: datetime,
    ended: datetime,
) -> Span:
    """Return the span of an issued command: the stop of its task is its parent, or linked."""
    id = command_id(state)
    task = None if state.task is None else tasks.get(state.task.digest)
    stop = None if task is None else _stop(task)
    is_same = stop is not None and stop.trace == id.trace
    links = [stop] if stop is not None and not is_same else []
    if isinstance(state.part_of, UUID):
        links.append(ids.of_command(state.part_of, digest=None, position=None))
    attributes: dict[str, Attribute | None] = {
        "arrester.application": state.application,
        "arrester.pipeline": state.pipeline if state.task is None else state.task.pipeline,
        "arrester.task": None if state.task is None else state.task.key,
        "arrester.position": state.position,
        "arrester.command": str(state.id),
        "arrester.command.kind": state.kind.value,
        "arrester.event": event,
    }
    return Span(
        name=f"issue {state.kind}",
        id=id,
        parent=stop if is_same else None,
        links=tuple(links),
        began=began,
        ended=ended,
        attributes=attributes,
        error=refused,
    )


def _stop(task: TaskState) -> SpanId | None:
    """Return the span of the stop of a task, which its agent has recorded."""
    if not task.status.stopped or task.failure is None or task.since is None:
        return None
    run = Run(pipeline=task.id.pipeline, checkpoint=task.id.checkpoint, epoch=task.epoch)
    return ids.of_stop(
        task.id.application, run, task.since, digest=task.id.digest, position=task.position
    )


def _fold(folded: _Folded, count: int, *, began: datetime, ended: datetime) -> Span:
    return Span(
        name=f"fold {folded.type}",
        id=ids.child_of(folded.parent, f"fold {folded.event}"),
        parent=folded.parent,
        began=began,
        ended=ended,
        attributes={"arrester.event": folded.event, "arrester.events": count},
        error=folded.error,
    )


def _folded(stored: Iterable[Stored]) -> Iterator[_Folded]:
    """Yield the decision or stop that each event is about; those about one decision are equal."""
    first: dict[SpanId, str] = {}
    for each in stored:
        application, name = each.application, event_name(each)
        if isinstance(each, StoredFailures):
            for microseconds, count in Counter(each.failed.moments).items():
                decision = ids.of_decision(application, each.failed.run, moment(microseconds))
                found = _Folded(decision, first.setdefault(decision, name), RecordFailed.__name__)
                yield from repeat(found, count)
            continue
        event = each.event
        stop = stop_of(application, event)
        if stop is not None:
            yield _Folded(stop, name, event.type)
        elif isinstance(event.data, RecordFailed | FailuresCounted) and event.run is not None:
            decision = ids.of_decision(application, event.run, event.occurred_at)
            yield _Folded(decision, first.setdefault(decision, name), RecordFailed.__name__)


def command_id(state: CommandState) -> SpanId:
    """Return the span of a command."""
    digest = None if state.task is None else state.task.digest
    return ids.of_command(state.id, digest=digest, position=state.position)

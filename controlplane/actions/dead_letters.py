"""Discard dead letters: the server does not redrive them, and no longer counts them as waiting."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from arrester.controlplane import access, store
from arrester.controlplane.actions.transaction import advance, check_text
from arrester.controlplane.views import row_mapping, skipped_records
from arrester.controlplane.views.dead_letter_selection import (
    DeadLetterFilter,
    OpenDeadLetter,
    open_dead_letters,
)
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    DeadLetterIds,
    DeadLettersDiscarded,
    Event,
    StoredEvent,
)
from arrester.domain.identity.dead_letter_ids import dead_letter_ids
from arrester.domain.identity.names import TaskId
from arrester.domain.state.stream_state import StreamState
from arrester.domain.wire import dead_letter_columns
from arrester.domain.wire.dead_letter_columns import MAX_RECORDS

#: The most dead letters of one act.
MAX_DISCARDED = 100_000
#: The most ids of one act: they fit a request.
MAX_IDS = 10_000


class Discarded(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of dead letters that an act discarded, and of those that it did not change; of a
    dry run, those of the act."""

    discarded: int
    unchanged: Annotated[
        int, Meta(description="Of `ids`: those that do not wait, or are not known.")
    ]
    more: Annotated[
        bool,
        Meta(description=f"More than {MAX_DISCARDED:,} matched: the oldest were discarded."),
    ] = False
    afterwards: Annotated[
        str | None,
        Meta(description="Of a dry run: where the records are after the act, in words; else null."),
    ] = None


def plan_discard(
    application: str,
    *,
    wanted: DeadLetterFilter | None = None,
    ids: Collection[str] | None = None,
) -> Discarded:
    """Return what `discard_dead_letters` would discard, and change nothing.

    Raises InvalidValue as it does.
    """
    access.require(application)
    found = open_dead_letters(_checked(application, wanted, ids), ids=ids, limit=MAX_DISCARDED + 1)
    discarded = min(len(found), MAX_DISCARDED)
    return Discarded(
        discarded=discarded,
        unchanged=0 if ids is None else len(set(ids)) - discarded,
        more=len(found) > MAX_DISCARDED,
        afterwards=skipped_records.after_discard(application, found) if found else None,
    )


def discard_dead_letters(
    application: str,
    *,
    wanted: DeadLetterFilter | None = None,
    ids: Collection[str] | None = None,
    actor: str,
    reason: str,
    id: UUID,
) -> Discarded:
    """Discard the dead letters that wait and match a filter, or have one of some ids.

    A repeated `id` changes nothing and returns the same numbers. Raises InvalidValue without a
    reason, for an id that is none, for too many ids, and for a filter that only names the
    application.
    """
    check_text(actor=actor, reason=reason)
    if not reason.strip():
        raise InvalidValue("reason", reason, "why the dead letters are discarded")
    chosen = _checked(application, wanted, ids)
    more = False

    def rule(_: StreamState) -> list[Event]:
        nonlocal more
        found = open_dead_letters(chosen, ids=ids, limit=MAX_DISCARDED + 1)
        more = len(found) > MAX_DISCARDED
        return [*_events(found[:MAX_DISCARDED], actor=actor, reason=reason)]

    advance(application, rule, id=id)
    done = store.read_batch(application, id)
    discarded = sum(_count(each, actor, reason, id) for each in done)
    unchanged = 0 if ids is None else len(set(ids)) - discarded
    return Discarded(discarded=discarded, unchanged=unchanged, more=more)


def _checked(
    application: str, wanted: DeadLetterFilter | None, ids: Collection[str] | None
) -> DeadLetterFilter:
    chosen = msgspec.structs.replace(wanted or DeadLetterFilter(), application=application)
    if ids is not None and not 1 <= len(ids) <= MAX_IDS:
        raise InvalidValue("ids", f"{len(ids):,} ids", f"1 to {MAX_IDS:,} ids")
    if ids is None and chosen == DeadLetterFilter(application=application):
        # An empty filter by mistake would discard all of the application.
        allowed = "ids, or a pipeline, task, stage, class, error group, status or time"
        raise InvalidValue("filter", "", allowed)
    return chosen


def _count(done: StoredEvent, actor: str, reason: str, id: UUID) -> int:
    data = done.event.data
    if not isinstance(data, DeadLettersDiscarded) or (data.actor, data.reason) != (actor, reason):
        raise InvalidValue("id", str(id), "an id that no other act has")
    return data.count


def _events(found: Sequence[OpenDeadLetter], *, actor: str, reason: str) -> Iterator[Event]:
    """Yield events of dead letters in order of task and position."""
    digests = [str(each) for each in {each.task for each in found}]
    loaded = row_mapping.TASKS.load_readable("digest = ANY(%s::uuid[])", [digests])
    tasks = {UUID(hex=each.id.digest): each.id for each in loaded}
    now = datetime.now(UTC)
    for (task, without_position), some in groupby(
        found, key=lambda each: (each.task, each.position is None)
    ):
        for part in _parts(some):
            positions = None if without_position else [each.position or 0 for each in part]
            data = DeadLettersDiscarded(
                pipeline=tasks[task].pipeline,
                checkpoint=tasks[task].checkpoint,
                task=tasks[task].key,
                count=len(part),
                first_position=part[0].position,
                last_position=part[-1].position,
                actor=actor,
                reason=reason,
                records=_packed(tasks[task], [each.id for each in part], positions),
            )
            yield Event(occurred_at=now, data=data)


def _parts(some: Iterable[OpenDeadLetter]) -> Iterator[list[OpenDeadLetter]]:
    all_of_task = list(some)
    for begin in range(0, len(all_of_task), MAX_RECORDS):
        yield all_of_task[begin : begin + MAX_RECORDS]


def _packed(task: TaskId, ids: Sequence[UUID], positions: Sequence[int] | None) -> DeadLetterIds:
    """Return ids as positions, which take much less space, if they are computed of those."""
    if positions is not None:
        names = (task.application, task.pipeline, task.checkpoint, task.key)
        if list(dead_letter_ids(*names, positions)) != [each.bytes for each in ids]:
            positions = None
    return dead_letter_columns.pack_ids(positions=positions, ids=[each.hex for each in ids])

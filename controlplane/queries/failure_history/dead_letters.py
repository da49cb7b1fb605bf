"""Dead letters one by one, and their totals by error group and by task.

A list reads each of its causes from an index, newest first: its time does not depend on the number
of dead letters, but on that of causes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta

from arrester.controlplane import store
from arrester.controlplane.models import NO_CAUSE, OPEN, DeadLetterStatus
from arrester.controlplane.queries import paging, sql
from arrester.controlplane.queries.failure_history import dead_letter_messages
from arrester.controlplane.queries.failure_history.dead_letter_messages import Reported
from arrester.controlplane.queries.paging import Page
from arrester.controlplane.store.column_values import MAX_BIGINT
from arrester.controlplane.views import row_mapping
from arrester.controlplane.views.dead_letter_selection import (
    ALL_OPEN,
    DeadLetterFilter,
    totals_of,
)
from arrester.domain.errors import InvalidValue, NotFound
from arrester.domain.events import RecordFailed, RecordsDeadLettered, StoredEvent
from arrester.domain.identity.names import TaskId
from arrester.domain.state.states import GroupState

#: The failures of a task that are searched for the one of a dead letter.
SEARCHED = 1_000
_COLUMNS = (
    "stream, id, task, cause, position, size, occurred_at, sequence, number, status,"
    " first_sequence, redrive, redrives"
)
_ORDER = "occurred_at DESC, stream DESC, sequence DESC, number DESC"
#: Each cause of a task, else of each pipeline, is one scan of an index for each status. Totals show
#: which ones have no rows. A scan after the last row of the page before begins at that row; other
#: streams precede or follow it. The index has all columns that are needed to find the rows of the
#: page.
_LIST = """
WITH scan AS (
    SELECT DISTINCT total.stream, total.{by}, total.cause, status.status,
        CASE sign(total.stream - %s) WHEN 0 THEN %s WHEN 1 THEN -1 ELSE {max} END AS last_sequence,
        CASE sign(total.stream - %s) WHEN 0 THEN %s WHEN 1 THEN -1 ELSE {max} END AS last_number
    FROM dead_letter_total AS total CROSS JOIN unnest(%s::smallint[]) AS status (status)
    WHERE {totals} AND CASE WHEN status.status IN {open} THEN total.waiting > 0
        ELSE total.count > total.waiting END
)
SELECT {columns} FROM (
    SELECT scan.stream, found.* FROM scan CROSS JOIN LATERAL (
        SELECT {by}, cause, status, occurred_at, sequence, number FROM dead_letter
        WHERE dead_letter.{by} = scan.{by} AND dead_letter.cause = scan.cause
            AND dead_letter.status = scan.status AND {times}
        ORDER BY occurred_at DESC, sequence DESC, number DESC LIMIT {limit}
    ) AS found ORDER BY {order} LIMIT {limit}
) AS place JOIN dead_letter AS found
    USING (stream, {by}, cause, status, occurred_at, sequence, number) ORDER BY {order}
"""
_OPEN = f"({', '.join(str(int(each)) for each in OPEN)})"


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter, with the newest event that reported it."""

    application: str
    #: 32 hexadecimal digits.
    id: Annotated[
        str,
        Meta(description="At the destination, too; of a record the same in each replay and run."),
    ]
    task: TaskId
    position: int | None
    size: Annotated[
        int | None, Meta(description="Of the record as JSON, in bytes; null: not known.")
    ]
    occurred_at: datetime
    sequence: Annotated[
        int, Meta(description="The log position of the newest event that reported it.")
    ]
    first_sequence: Annotated[
        int, Meta(description="The log position of the first event that reported it.")
    ]
    status: DeadLetterStatus
    redrive: Annotated[
        UUID | None, Meta(description="The redrive of the server that took it last.")
    ]
    redrives: Annotated[int, Meta(description="How often it was redriven.")]
    #: The error group; None: the record did not fail, or its cause is not known.
    group: GroupState | None
    message: Annotated[
        str | None,
        Meta(description="Of the record's own failure; null: none, or it was counted only."),
    ]
    place: Annotated[str, Meta(description="The destination.")]
    format: str
    actor: Annotated[str | None, Meta(description="Null: skipped by a handler.")]
    reason: str | None

    @property
    def open(self) -> bool:
        """Whether it waits."""
        return self.status in OPEN


class DeadLetterTotal(msgspec.Struct, frozen=True, kw_only=True):
    """The number of dead letters of an error group in an application, or of a task."""

    application: str
    count: int
    waiting: Annotated[int, Meta(description="Those that are WAITING or FAILED_AGAIN.")]
    #: Set in totals by task.
    task: TaskId | None = None
    #: Set in totals by group; None: without a known cause.
    group: GroupState | None = None


def dead_letters(
    wanted: DeadLetterFilter, *, cursor: str | None = None, limit: int = 50
) -> Page[DeadLetter]:
    """Return dead letters, newest first."""
    before = paging.unpack(cursor, tuple[datetime, int, int, int], of="dead letters")
    limit = paging.checked(limit)
    conditions, parameters = totals_of(wanted)
    if conditions is None:
        return Page(rows=())
    times: list[str] = ["true"]
    of_times: list[datetime] = []
    for condition, moment in (
        ("occurred_at >= %s", wanted.since),
        ("occurred_at < %s", wanted.until),
    ):
        if moment is not None:
            times.append(condition)
            of_times.append(moment)
    stream = sequence = number = 0
    if before is not None:
        _, stream, sequence, number = before
        times.append("(occurred_at, sequence, number) < (%s, scan.last_sequence, scan.last_number)")
        of_times.append(before[0])
    statement = _LIST.format(
        by="pipeline" if wanted.task is None else "task",
        max=MAX_BIGINT,
        open=_OPEN,
        totals=" AND ".join(conditions),
        columns=_COLUMNS,
        times=" AND ".join(times),
        order=_ORDER,
        limit=limit + 1,
    )
    statuses = [each.value for each in wanted.statuses]
    last = [stream, sequence, stream, number]
    rows = sql.rows(statement, [*last, statuses, *parameters, *of_times])
    page = paging.page(
        rows,
        of="dead letters",
        limit=limit,
        key=lambda row: (row[6], row[0], row[7], row[8]),
    )
    return Page(rows=tuple(_filled(page.rows)), next=page.next)


def dead_letter(application: str, id: str) -> DeadLetter:
    """Return one dead letter; raise NotFound."""
    try:
        key = UUID(hex=id)
    except ValueError:
        key = None
    rows = sql.rows(
        f"SELECT {_COLUMNS} FROM dead_letter WHERE id = %s"
        " AND stream = (SELECT id FROM stream WHERE application = %s)",
        [key, application],
    )
    found = _filled(rows)
    if not found:
        raise NotFound(f"there is no dead letter {id!r} of {application}")
    return found[0]


def read_dead_letters(ids: Collection[UUID], *, limit: int) -> list[DeadLetter]:
    """Return dead letters by their ids, as far as they exist, newest first."""
    rows = sql.rows(
        f"SELECT {_COLUMNS} FROM dead_letter"
        " WHERE stream IN (SELECT id FROM stream) AND id = ANY(%s::uuid[])"
        f" ORDER BY {_ORDER} LIMIT {limit:d}",
        [[*ids]],
    )
    return _filled(rows)


def dead_letter_totals(
    wanted: DeadLetterFilter, *, by: str, cursor: str | None = None, limit: int = 50
) -> Page[DeadLetterTotal]:
    """Return the totals by `group` or by `task`, greatest first."""
    if by not in ("group", "task"):
        raise InvalidValue("by", by, "group, task")
    if wanted.since is not None or wanted.until is not None:
        raise InvalidValue("since", wanted.since, "no time: totals are of all known dead letters")
    name = f"totals by {by}"
    before = paging.unpack(cursor, tuple[int, int, str], of=name)
    limit = paging.checked(limit)
    conditions, parameters = totals_of(wanted)
    if conditions is None:
        return Page(rows=())
    column = "cause" if by == "group" else "task"
    bounds: list[Any] = [] if before is None else [*before]
    rows = sql.rows(
        f"SELECT stream, {column}, sum(count)::bigint, max(fingerprint), sum(waiting)::bigint"
        f" FROM dead_letter_total AS total WHERE {' AND '.join(conditions)}"
        f" GROUP BY stream, {column}"
        + (f" HAVING (sum(count), stream, {column}::text) < (%s, %s, %s)" if before else "")
        + f" ORDER BY sum(count) DESC, stream DESC, {column}::text DESC LIMIT %s",
        [*parameters, *bounds, limit + 1],
    )
    page = paging.page(rows, of=name, limit=limit, key=lambda row: (row[2], row[0], str(row[1])))
    totals = _totals_of_tasks(page.rows) if by == "task" else _totals_of_groups(page.rows)
    return Page(rows=tuple(totals), next=page.next)


def _totals_of_tasks(rows: Sequence[tuple[Any, ...]]) -> list[DeadLetterTotal]:
    names = {each.id: each.application for each in store.all_streams()}
    tasks = _tasks([row[1] for row in rows])
    return [
        DeadLetterTotal(application=names[row[0]], count=row[2], waiting=row[4], task=tasks[row[1]])
        for row in rows
        if row[1] in tasks
    ]


def _totals_of_groups(rows: Sequence[tuple[Any, ...]]) -> list[DeadLetterTotal]:
    names = {each.id: each.application for each in store.all_streams()}
    groups = _groups([(names[row[0]], row[3]) for row in rows if row[3] is not None])
    return [
        DeadLetterTotal(
            application=names[row[0]],
            count=row[2],
            waiting=row[4],
            group=groups.get((names[row[0]], row[3])),
        )
        for row in rows
    ]


def count_dead_letters(wanted: DeadLetterFilter) -> int | None:
    """Return the number of dead letters; None: it is not known without counting them all."""
    if (wanted.since, wanted.until) != (None, None) or wanted.status not in (None, ALL_OPEN):
        return None
    column = "count" if wanted.status is None else "waiting"
    conditions, parameters = totals_of(wanted)
    if conditions is None:
        return 0
    where = " AND ".join(conditions)
    [(count,)] = sql.rows(
        f"SELECT coalesce(sum({column}), 0) FROM dead_letter_total AS total WHERE {where}",
        parameters,
    )
    return int(count)


def failure_of(one: DeadLetter) -> StoredEvent | None:
    """Return the newest failure of the record with its body, if it was reported in full.

    It is searched among the task's failures of about that time; the log may have more.
    """
    return _failure(one, one.sequence)


def first_failure_of(one: DeadLetter) -> StoredEvent | None:
    """Return the first failure of the record, if a newer event reported it once more."""
    return None if one.first_sequence == one.sequence else _failure(one, one.first_sequence)


def _failure(one: DeadLetter, reported: int) -> StoredEvent | None:
    """Return the last failure before the event that reported the dead letter, else the next."""
    if one.position is None:
        return None
    found = None
    for each in store.read_examples(UUID(hex=one.task.digest), around=reported, limit=SEARCHED):
        data = each.event.data
        if isinstance(data, RecordFailed) and data.position == one.position:
            found = each
            if each.sequence < reported:
                break
    return None if found is None else store.read_one(found.application, found.sequence)


def _filled(rows: Sequence[tuple[Any, ...]]) -> list[DeadLetter]:
    """Return rows of the index with their names, and what their events report."""
    names = {each.id: each.application for each in store.all_streams()}
    tasks = _tasks([row[2] for row in rows])
    fingerprints = _fingerprints(rows)
    groups = _groups([(names[stream], name) for (stream, _), name in fingerprints.items()])
    keys = sorted({(row[0], row[7]) for row in rows})
    events = {
        (each.application, each.sequence): each.event.data for each in store.read_positions(keys)
    }
    messages = dead_letter_messages.messages(
        [Reported(row[2], row[4], row[7]) for row in rows if row[4] is not None]
    )
    found = []
    for stream, id, task, cause, position, size, at, sequence, _, status, *more in rows:
        first_sequence, redrive, redrives = more
        name = names[stream]
        event = events.get((name, sequence))
        if task not in tasks or not isinstance(event, RecordsDeadLettered):
            # Retention has dropped its event meanwhile.
            continue
        found.append(
            DeadLetter(
                application=name,
                id=id.hex,
                task=tasks[task],
                position=position,
                size=size,
                occurred_at=at,
                sequence=sequence,
                first_sequence=first_sequence,
                status=DeadLetterStatus(status),
                redrive=redrive,
                redrives=redrives,
                group=groups.get((name, fingerprints.get((stream, cause), ""))),
                message=messages.get(Reported(task, position, sequence)),
                place=event.place,
                format=event.format,
                actor=event.actor,
                reason=event.reason,
            )
        )
    return found


def _fingerprints(rows: Sequence[tuple[Any, ...]]) -> dict[tuple[int, int], str]:
    """Return the fingerprints of causes, by stream and cause."""
    keys = {(row[0], row[2], row[3]) for row in rows if row[3] != NO_CAUSE}
    if not keys:
        return {}
    streams, tasks, causes = zip(*keys, strict=True)
    found = sql.rows(
        "SELECT stream, cause, fingerprint FROM dead_letter_total WHERE (stream, task, cause) IN"
        " (SELECT * FROM unnest(%s::int[], %s::uuid[], %s::bigint[]))",
        [list(streams), list(tasks), list(causes)],
    )
    return {(stream, cause): name for stream, cause, name in found if name is not None}


def _tasks(digests: Sequence[UUID]) -> dict[UUID, TaskId]:
    tasks = row_mapping.TASKS.load_readable("digest = ANY(%s::uuid[])", [list(set(digests))])
    return {UUID(hex=each.id.digest): each.id for each in tasks}


def _groups(keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], GroupState]:
    if not keys:
        return {}
    names, fingerprints = zip(*set(keys), strict=True)
    found = row_mapping.GROUPS.load_readable(
        "(application, fingerprint) IN (SELECT * FROM unnest(%s::text[], %s::text[]))",
        [list(names), list(fingerprints)],
    )
    return {(each.application, each.fingerprint): each for each in found}

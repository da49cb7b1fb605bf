"""Events about dead letters: those that are stored, and failed writes to their destination."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from pyspark.sql import DataFrame, GroupedData, Row
from pyspark.sql import functions as F

from arrester.agents.dead_letters.destinations import RejectedDeadLetters
from arrester.agents.dead_letters.rows import BY_ROW, is_by_row
from arrester.agents.failures.fingerprints import failure_at
from arrester.domain.error_policy.policy import StageKind
from arrester.domain.events import (
    DeadLettersFailed,
    RecordsDeadLettered,
    RecordsRedriven,
)
from arrester.domain.wire import dead_letter_columns

#: Events have the IDs of at most this many dead letters per task, and per entry.
_LISTED_PER_TASK: Final = 20
_LISTED: Final = 100
#: What events have of a dead letter.
_COLUMNS: Final = ("task", "position", "id", "actor", "reason", "fingerprint", "size")


class _Chunk(NamedTuple):
    """Some dead letters of a task, in order of position."""

    task: str | None
    #: Whether they are identified by their row.
    by_row: bool
    chunk: int
    first: int | None
    last: int | None
    actor: str | None
    reason: str | None
    fingerprints: Sequence[str]
    positions: Sequence[int]
    sizes: Sequence[int]
    #: For each dead letter the place of its fingerprint in the list, from 1; 0: it has none.
    causes: Sequence[int]
    ids: Sequence[str]


def stored_events(
    stored: DataFrame, *, place: str, format: str, few: bool, on_driver: bool = False
) -> list[RecordsDeadLettered]:
    """Return events of all dead letters, by task. The first ones also have IDs as text.

    Few are grouped on the driver. Of many, it reads one partition at a time, and Spark computes the
    next one. `on_driver`: it has the rows, so that a selection of columns takes longer than all.
    """
    events, remaining = [], _LISTED
    if few:
        rows = stored if on_driver else stored.select(*_COLUMNS, "stage")
        chunks = _chunks_on_driver(rows.collect())
    else:
        chunks = _chunks_in_spark(stored)
    for each in chunks:
        # The positions of the others, or their ids, are in the columns.
        most = min(remaining, _LISTED_PER_TASK) if each.chunk == 0 else 0
        listed = tuple(each.ids[:most])
        remaining -= len(listed)
        events.append(
            RecordsDeadLettered(
                task=each.task,
                count=len(each.sizes),
                ids=listed,
                place=place,
                format=format,
                first_position=each.first,
                last_position=each.last,
                actor=each.actor,
                reason=each.reason,
                records=dead_letter_columns.pack(
                    fingerprints=each.fingerprints,
                    causes=each.causes,
                    sizes=each.sizes,
                    positions=None if each.by_row else each.positions,
                    ids=each.ids,
                ),
            )
        )
    return events


def _chunks_on_driver(stored: Sequence[Row]) -> Iterator[_Chunk]:
    """Yield the chunks of few dead letters, as `_chunks` has them."""
    groups: defaultdict[tuple[str | None, bool], list[Row]] = defaultdict(list)
    for row in stored:
        groups[row["task"], is_by_row(row["position"], row["stage"])].append(row)
    for task, by_row in sorted(groups, key=lambda key: (key[0] is not None, *map(str, key))):
        rows = sorted(groups[task, by_row], key=lambda row: _nulls_first(row["position"]))
        for number, begin in enumerate(range(0, len(rows), dead_letter_columns.MAX_RECORDS)):
            some = rows[begin : begin + dead_letter_columns.MAX_RECORDS]
            # All of them, unless they are identified by their rows.
            positions = [row["position"] for row in some if row["position"] is not None]
            causes = [row["fingerprint"] for row in some]
            found = dict.fromkeys(each for each in causes if each is not None)
            places = {fingerprint: place for place, fingerprint in enumerate(found, start=1)}
            yield _Chunk(
                task=task,
                by_row=by_row,
                chunk=number,
                first=min(positions, default=None),
                last=max(positions, default=None),
                actor=some[0]["actor"],
                reason=some[0]["reason"],
                fingerprints=list(found),
                positions=positions,
                sizes=[row["size"] for row in some],
                causes=[places.get(each, 0) for each in causes],
                ids=[row["id"] for row in some],
            )


def _nulls_first(position: int | None) -> tuple[bool, int]:
    return position is not None, position or 0


def _chunks_in_spark(stored: DataFrame) -> Iterator[_Chunk]:
    for row in _chunks(stored).toLocalIterator(prefetchPartitions=True):
        yield _Chunk(**row.asDict())


def _chunks(stored: DataFrame) -> DataFrame:
    """Return the dead letters of each task in order, in rows of a limited number of them.

    Dead letters that are identified by their row are apart. The dead letters of a task were skipped
    by the same operator, or by none.
    """
    return (
        _in_chunks(stored, *_COLUMNS, order="monotonically_increasing_id()")
        .agg(
            F.expr("min(position) AS first"),
            F.expr("max(position) AS last"),
            F.expr("first(actor) AS actor"),
            F.expr("first(reason) AS reason"),
            F.expr("collect_set(fingerprint) AS fingerprints"),
            F.expr(
                "sort_array(collect_list(struct(rank, position, id, fingerprint, size))) AS records"
            ),
        )
        .select(
            *("task", "by_row", "chunk", "first", "last", "actor", "reason", "fingerprints"),
            F.expr("records.position AS positions"),
            F.expr("records.size AS sizes"),
            F.expr(
                "transform(records, each -> coalesce("
                "CAST(array_position(fingerprints, each.fingerprint) AS INT), 0)) AS causes"
            ),
            F.expr(f"if(by_row, records.id, slice(records.id, 1, {_LISTED_PER_TASK})) AS ids"),
        )
    )


def _in_chunks(frame: DataFrame, *columns: str, order: str) -> GroupedData:
    """Return the columns grouped by task, in chunks of a limited number of dead letters by rank.

    Those that are identified by their row are apart; `order` sorts those of one position.
    """
    rank = "row_number() OVER (PARTITION BY task, by_row ORDER BY position, number) AS rank"
    chunk = f"CAST((rank - 1) DIV {dead_letter_columns.MAX_RECORDS} AS INT) AS chunk"
    return (
        frame.selectExpr(*columns, f"{BY_ROW} AS by_row", f"{order} AS number")
        .selectExpr("*", rank)
        .selectExpr("*", chunk)
        .groupBy("task", "by_row", "chunk")
    )


def redriven_events(
    redriven: DataFrame, *, actor: str | None, reason: str, redrive: UUID | None = None
) -> list[RecordsRedriven]:
    """Return events of redriven dead letters, by task; it has their columns."""
    chunks = _in_chunks(redriven, "task", "position", "id", order="id")
    records = chunks.agg(F.expr("sort_array(collect_list(struct(rank, position, id))) AS records"))
    # Ids are texts of 32 characters, and most follow from the positions.
    columns = ("records.position AS positions", "if(by_row, records.id, array()) AS ids")
    events = []
    for row in records.selectExpr("task", "by_row", *columns).toLocalIterator(
        prefetchPartitions=True
    ):
        positions = row["positions"]
        events.append(
            RecordsRedriven(
                task=row["task"],
                count=len(positions),
                first_position=positions[0],
                last_position=positions[-1],
                actor=actor,
                reason=reason,
                redrive=redrive,
                records=dead_letter_columns.pack_ids(
                    positions=None if row["by_row"] else positions, ids=row["ids"]
                ),
            )
        )
    return events


def rejected_events(
    rejected: Sequence[RejectedDeadLetters], *, place: str, format: str
) -> list[DeadLettersFailed]:
    """Return an event for each task whose dead letters the destination rejected."""
    return [
        DeadLettersFailed(
            task=each.task,
            failures=each.failures,
            waiting=each.waiting,
            place=place,
            format=format,
            failure=failure_at(StageKind.PRODUCE, each.problem),
        )
        for each in rejected
    ]

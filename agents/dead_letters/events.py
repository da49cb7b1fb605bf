"""Events about dead letters: those that are stored, and failed writes to their destination."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from pyspark.sql import DataFrame, GroupedData
from pyspark.sql import functions as F

from arrester.agents.dead_letters.destinations import RejectedDeadLetters
from arrester.agents.dead_letters.rows import BY_ROW
from arrester.agents.failures.fingerprints import failure_at
from arrester.controlplane.domain.error_policy.policy import StageKind
from arrester.controlplane.domain.events import (
    DeadLettersFailed,
    RecordsDeadLettered,
    RecordsRedriven,
)
from arrester.controlplane.domain.wire import dead_letter_columns

#: Events have the IDs of at most this many dead letters per task, and per entry.
_LISTED_PER_TASK: Final = 20
_LISTED: Final = 100


def stored_events(
    stored: DataFrame, *, place: str, format: str, few: bool
) -> list[RecordsDeadLettered]:
    """Return events of all dead letters, by task. The first ones also have IDs as text.

    Unless they are few, the driver reads one partition at a time, and Spark computes the next one.
    """
    chunks = _chunks(stored)
    events, remaining = [], _LISTED
    for row in chunks.collect() if few else chunks.toLocalIterator(prefetchPartitions=True):
        ids = row["ids"]
        # The positions of the others, or their ids, are in the columns.
        listed = tuple(ids[: min(remaining, _LISTED_PER_TASK)]) if row["chunk"] == 0 else ()
        remaining -= len(listed)
        positions = None if row["by_row"] else row["positions"]
        events.append(
            RecordsDeadLettered(
                task=row["task"],
                count=len(row["sizes"]),
                ids=listed,
                place=place,
                format=format,
                first_position=row["first"],
                last_position=row["last"],
                actor=row["actor"],
                reason=row["reason"],
                records=dead_letter_columns.pack(
                    fingerprints=row["fingerprints"],
                    causes=row["causes"],
                    sizes=row["sizes"],
                    positions=positions,
                    ids=ids,
                ),
            )
        )
    return events


def _chunks(stored: DataFrame) -> DataFrame:
    """Return the dead letters of each task in order, in rows of a limited number of them.

    Dead letters that are identified by their row are apart. The dead letters of a task were skipped
    by the same operator, or by none.
    """
    columns = ("task", "position", "id", "actor", "reason", "fingerprint", "size")
    return (
        _in_chunks(stored, *columns, order="monotonically_increasing_id()")
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
            waiting=each.pending,
            place=place,
            format=format,
            failure=failure_at(StageKind.PRODUCE, each.problem),
        )
        for each in rejected
    ]

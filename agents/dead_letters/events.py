"""Events about dead letters: those that are stored, and failed writes to their destination."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.dead_letters.destinations import RejectedDeadLetters
from arrester.agents.failures.fingerprints import failure_at
from arrester.controlplane.domain.error_policy.policy import StageKind
from arrester.controlplane.domain.events import DeadLettersFailed, RecordsDeadLettered

#: Events have the IDs of at most this many dead letters per task, and per entry.
_LISTED_PER_TASK: Final = 20
_LISTED: Final = 100
_ORDER: Final = "order"
_RANK: Final = "rank"


def stored_events(stored: DataFrame, *, place: str, format: str) -> list[RecordsDeadLettered]:
    """Return an event for each task with dead letters. It has the IDs of the first ones."""
    events, remaining = [], _LISTED
    for row in _by_task(stored).collect():
        ids = tuple(row["ids"][:remaining])
        remaining -= len(ids)
        events.append(
            RecordsDeadLettered(
                task=row["task"],
                count=row["count"],
                ids=ids,
                place=place,
                format=format,
                first_position=row["first"],
                last_position=row["last"],
                actor=row["actor"],
                reason=row["reason"],
            )
        )
    return events


def _by_task(stored: DataFrame) -> DataFrame:
    """Return for each task the count of its dead letters, their positions, and the first IDs.

    The dead letters of a task were skipped by the same operator, or by none.
    """
    # Records without a position follow the order of their file.
    order = f"coalesce(position, monotonically_increasing_id()) AS {_ORDER}"
    rank = f"row_number() OVER (PARTITION BY task ORDER BY {_ORDER}) AS {_RANK}"
    return (
        stored.selectExpr("task", "position", "id", "actor", "reason", order)
        .selectExpr("*", rank)
        .groupBy("task")
        .agg(
            F.expr("count(1) AS count"),
            F.expr("min(position) AS first"),
            F.expr("max(position) AS last"),
            F.expr("first(actor) AS actor"),
            F.expr("first(reason) AS reason"),
            F.expr(
                f"sort_array(collect_list(struct({_RANK}, id)) FILTER "
                f"(WHERE {_RANK} <= {_LISTED_PER_TASK})).id AS ids"
            ),
        )
    )


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

"""Events about an entry's dead letters: per task how many, which ones, and where."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.dead_letters.schema import DeadLetterContext
from arrester.controlplane.domain.events import RecordsDeadLettered

#: At most this many dead letters are named per task, and per entry.
LISTED_PER_TASK: Final = 20
LISTED: Final = 100
_ORDER: Final = "order"


def dead_letter_events(
    letters: DataFrame, said: DeadLetterContext, *, place: str, format: str
) -> list[RecordsDeadLettered]:
    """Return an event for each task with dead letters. It names the first ones by their IDs."""
    # Records without a position follow the order of their file.
    order = F.coalesce("position", F.monotonically_increasing_id())
    tasks = (
        letters.withColumn(_ORDER, order)
        .groupBy("task")
        .agg(
            F.count(F.lit(1)).alias("n"),
            F.min("position").alias("first"),
            F.max("position").alias("last"),
            F.min_by("id", _ORDER, LISTED_PER_TASK).alias("ids"),
        )
    )
    told, room = [], LISTED
    for row in tasks.collect():
        ids = tuple(row["ids"][:room])
        room -= len(ids)
        told.append(
            RecordsDeadLettered(
                task=row["task"],
                count=row["n"],
                ids=ids,
                place=place,
                format=format,
                first_position=row["first"],
                last_position=row["last"],
                actor=said.actor,
                reason=said.reason,
            )
        )
    return told

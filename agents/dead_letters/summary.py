"""What the server is told of an entry's dead letters: of each task how many, which, and where."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.dead_letters.schema import Said
from arrester.controlplane.domain.events import RecordsDeadLettered

#: So many letters of a task, and of an entry, are named.
NAMED_OF_TASK: Final = 20
NAMED: Final = 100
_ORDER: Final = "order"


def letters_told(
    letters: DataFrame, said: Said, *, place: str, format: str
) -> list[RecordsDeadLettered]:
    """Return an event for each task of some kept letters; the first ones are named by their ids."""
    # A record without a position is told in the order of its file.
    order = F.coalesce("position", F.monotonically_increasing_id())
    tasks = (
        letters.withColumn(_ORDER, order)
        .groupBy("task")
        .agg(
            F.count(F.lit(1)).alias("n"),
            F.min("position").alias("first"),
            F.max("position").alias("last"),
            F.min_by("id", _ORDER, NAMED_OF_TASK).alias("ids"),
        )
    )
    told, room = [], NAMED
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

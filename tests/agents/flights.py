"""Files of flights, the pipeline of the README and its sink."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester import Agent, LogAndContinue, LogAndPause
from arrester.agents.definition.pipeline import Pipeline

SOURCE = "origin STRING, position LONG, value STRING"
FLIGHT = "dep_delay INT, arr_delay INT"
#: More minutes than any real flight is late: a person has to look.
TOO_LATE = 900
#: origin, position, value
Flight = tuple[str, int, str]


def validate(row: dict[str, Any]) -> dict[str, Any]:
    if row["flight"]["dep_delay"] > TOO_LATE:
        raise ValueError(f"{row['flight']['dep_delay']} minutes late")
    return row


@dataclass(frozen=True, slots=True)
class World:
    spark: SparkSession
    folder: Path

    @property
    def checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    def arrive(self, name: str, flights: Sequence[Flight]) -> None:
        """Add a file of flights to the source atomically."""
        place = self.folder / "source"
        place.mkdir(exist_ok=True)
        hidden = place / f"_{name}"
        hidden.write_text("".join(f"{origin}|{at}|{value}\n" for origin, at, value in flights))
        hidden.rename(place / f"{name}.csv")

    def source(self) -> DataFrame:
        (self.folder / "source").mkdir(exist_ok=True)
        reader = self.spark.readStream.schema(SOURCE).option("sep", "|")
        return reader.csv(str(self.folder / "source"))

    def sink(self, frame: DataFrame, number: int) -> None:
        """Write the passed rows, idempotent by number."""
        frame.write.mode("overwrite").json(str(self.folder / "sink" / f"{number:08d}"))

    def delays(self, agent: Agent) -> Pipeline:
        return (
            agent.pipeline(
                "delays", self.source(), task="origin", position="position", value="value"
            )
            .deserialize("flight", F.from_csv("value", FLIGHT), on_error=LogAndContinue())
            .process("validate", validate, on_error=LogAndPause())
            .write(self.sink)
        )

    def written(self, origin: str) -> list[int]:
        """Return the positions of a task in the sink, in the order of writing."""
        done = sorted(self.folder.glob("sink/*/_SUCCESS"))
        parts = [part for success in done for part in sorted(success.parent.glob("part-*.json"))]
        rows = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
        return [row["position"] for row in rows if row["origin"] == origin]

    def dead_letters(self) -> int:
        complete = [str(mark.parent) for mark in self.folder.glob("dlq/day=*/*/_SUCCESS")]
        return self.spark.read.parquet(*complete).count() if complete else 0

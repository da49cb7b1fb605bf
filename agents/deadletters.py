"""Skipped records with their errors, written by the executors, in their place exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from agents.checkpoint import FileTaken, storage
from agents.config import AgentConfig
from agents.entries import DeadLetters
from agents.failed import FailedRecord, is_native
from agents.pipeline import Pipeline
from agents.worker.columns import ERROR, FATE, POSITION, PREFIX, ROW, SOURCE, TASK
from controlplane.domain.events import RecordsDeadLettered

_PENDING = "_pending"
#: Before the columns that the driver adds; an author's own never begin so.
_SAID = f"{PREFIX}said_"
_KNOWN = T.StructType(
    [
        T.StructField(f"{_SAID}task", T.StringType()),
        T.StructField(f"{_SAID}position", T.LongType()),
        T.StructField(f"{_SAID}exception", T.StringType()),
        T.StructField(f"{_SAID}condition", T.StringType()),
        T.StructField(f"{_SAID}message", T.StringType()),
        T.StructField(f"{_SAID}stack", T.StringType()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What is the same for all dead letters of one folder."""

    at: datetime
    reason: str | None
    actor: str | None
    #: Spark's error condition of a record that was skipped by a person.
    condition: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFolder:
    """A folder of dead letters as parquet, one schema for all pipelines and for ever.

    Columns: id (unique), application, pipeline, checkpoint, task, position, stage,
    exception_class, condition, message, stack, row (the source row as JSON, not redacted), reason
    and actor (of the person who skipped it), at. Exceptions of native steps are known for the
    examples only; the others have NULL there.
    """

    spark: SparkSession
    path: str
    application: str
    pipeline: Pipeline
    checkpoint: str

    def put(
        self,
        frame: DataFrame,
        known: Sequence[FailedRecord],
        *,
        name: str,
        at: datetime,
        reason: str | None = None,
        actor: str | None = None,
        condition: str | None = None,
    ) -> tuple[DeadLetters, list[RecordsDeadLettered]]:
        """Write records to a pending folder; return where, and what to tell when it is moved.

        `frame` has the columns ROW, TASK, POSITION, FATE and ERROR. Spark readers pass over the
        pending folder: nothing is visible before `publish`.
        """
        said = Said(at=at, reason=reason, actor=actor, condition=condition)
        letters = self._letters(frame, known, name, said)
        pending = f"{self.path}/{_PENDING}/{name}"
        letters.write.mode("overwrite").parquet(pending)
        day = at.astimezone(UTC).date().isoformat()
        written = (
            self.spark.read.parquet(pending)
            .groupBy("task")
            .agg(
                F.count(F.lit(1)).alias("n"),
                F.min("position").alias("first"),
                F.max("position").alias("last"),
            )
        )
        told = [
            RecordsDeadLettered(
                task=row["task"],
                count=row["n"],
                place=f"{self.path}/day={day}/{name}",
                format="parquet",
                first_position=row["first"],
                last_position=row["last"],
                actor=actor,
                reason=reason,
            )
            for row in written.collect()
        ]
        return DeadLetters(path=self.path, name=name, day=day), told

    def _letters(
        self, frame: DataFrame, known: Sequence[FailedRecord], name: str, said: Said
    ) -> DataFrame:
        frame, found = self._with_known(frame, known)
        error = F.col(ERROR)
        # Two rows may share a position, or have none: the row's number in this folder tells.
        number = F.monotonically_increasing_id().cast("string")
        return frame.select(
            F.substring(F.sha2(F.concat(F.lit(f"{name}/"), number), 256), 1, 32).alias("id"),
            F.lit(self.application).alias("application"),
            F.lit(self.pipeline.name).alias("pipeline"),
            F.lit(self.checkpoint).alias("checkpoint"),
            F.col(TASK).alias("task"),
            F.col(POSITION).alias("position"),
            self._stage().alias("stage"),
            F.coalesce(error["exception_class"], found[f"{_SAID}exception"]).alias(
                "exception_class"
            ),
            F.coalesce(F.lit(said.condition), found[f"{_SAID}condition"]).alias("condition"),
            F.coalesce(error["message"], found[f"{_SAID}message"]).alias("message"),
            F.coalesce(error["stack"], found[f"{_SAID}stack"]).alias("stack"),
            F.to_json(F.col(ROW), {"ignoreNullFields": "false"}).alias("row"),
            F.lit(said.reason).cast("string").alias("reason"),
            F.lit(said.actor).cast("string").alias("actor"),
            F.lit(said.at).alias("at"),
        )

    def _with_known(
        self, frame: DataFrame, known: Sequence[FailedRecord]
    ) -> tuple[DataFrame, dict[str, Column]]:
        """Put what the driver found out about some native failures beside them."""
        rows = {
            (each.task, each.position): (
                each.task,
                each.position,
                each.problem.exception_class,
                each.problem.condition,
                each.problem.message,
                each.problem.stack,
            )
            for each in known
            if is_native(self.pipeline, each.number) or each.number == SOURCE
        }
        if not rows:
            nothing = F.lit(None).cast("string")
            return frame, dict.fromkeys(_KNOWN.names, nothing)
        right = F.broadcast(self.spark.createDataFrame(list(rows.values()), _KNOWN))
        same = F.col(TASK).eqNullSafe(F.col(f"{_SAID}task")) & F.col(POSITION).eqNullSafe(
            F.col(f"{_SAID}position")
        )
        return frame.join(right, same, "left"), {name: F.col(name) for name in _KNOWN.names}

    def _stage(self) -> Column:
        stages = ["source", *[step.stage for step in self.pipeline.steps]]
        column = F.lit(None).cast("string")
        for number, stage in enumerate(stages):
            column = F.when(F.col(FATE) == number, F.lit(stage)).otherwise(column)
        return column


def publish(spark: SparkSession, letters: DeadLetters) -> None:
    """Move pending dead letters to their day; done before, it changes nothing."""
    files = storage(spark, letters.path)
    pending = f"{_PENDING}/{letters.name}"
    if not files.exists(pending):
        return
    try:
        files.move(pending, f"day={letters.day}/{letters.name}")
    except FileTaken:
        files.delete(pending)


def folder_of(pipeline: Pipeline, checkpoint: str, config: AgentConfig) -> DeadLetterFolder | None:
    """Return where dead letters go, None when they are not enabled."""
    letters = config.errors.dead_letters
    if not letters.enable or letters.path is None:
        return None
    return DeadLetterFolder(
        spark=pipeline.source.sparkSession,
        path=letters.path,
        application=config.application,
        pipeline=pipeline,
        checkpoint=checkpoint,
    )

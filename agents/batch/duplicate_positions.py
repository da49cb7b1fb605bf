"""Fail records that share the position of a failed record: they cannot be distinguished.

The position matters only when its record fails: for skipping it in a replay, reporting it, or
pausing at it. Positions of successful records are not checked.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.batch.record_columns import BROADCAST_RECORDS, COORDINATES, join_records
from arrester.agents.batch.slow_path import Evaluated
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.failures.failure_set import has_failed, is_in
from arrester.agents.spark.frames.column_names import text_literal, with_columns_named
from arrester.agents.spark.frames.local_checkpoint import releasing
from arrester.agents.worker.columns import (
    ENTRY,
    ERROR,
    ERROR_TYPE,
    FILTERED,
    ORDINAL,
    OUTCOME,
    POSITION,
    SOURCE,
    TASK,
)

_SHARED = "__arrester_shared"
#: Up to this many failed records, in up to this many tasks, are listed in an expression.
_LISTED_RECORDS, _LISTED_TASKS = 5_000, 50


def fail_shared_positions(evaluated: Evaluated, pipeline: Pipeline, *, examples: int) -> Evaluated:
    """Return `evaluated` with all records failed that share the position of a failed one.

    If there are none, the failures have up to `examples` rows of each cause.
    """
    if _are_distinct(evaluated, pipeline, examples):
        return evaluated
    shared = _shared(evaluated)
    if shared.isEmpty():
        return evaluated
    with releasing() as checkpoints:
        shared = checkpoints.add(shared)
        # A join may reorder rows each time, and the order identifies failed records.
        frame = checkpoints.add(_with_failed(evaluated.frame, shared))
        failed = frame.where(has_failed()).count()
        checkpoints.pop()
    return replace(evaluated.with_frame(frame, failed=failed), blocks=(*evaluated.blocks, frame))


def _with_failed(frame: DataFrame, shared: DataFrame) -> DataFrame:
    """Return the rows with all records failed whose coordinates are in `shared`."""
    joined = join_records(frame, shared.withColumn(_SHARED, F.lit(True)), "left")
    fails = F.coalesce(F.col(_SHARED), F.lit(False)) & _is_evaluated()
    no_error = F.lit(None).cast(ERROR_TYPE)
    columns = {
        OUTCOME: F.when(fails, F.lit(SOURCE)).otherwise(F.col(OUTCOME)),
        ERROR: F.when(fails, no_error).otherwise(F.col(ERROR)),
    }
    return with_columns_named(joined.withColumns(columns), frame.columns)


def _are_distinct(evaluated: Evaluated, pipeline: Pipeline, examples: int) -> bool:
    """Whether no failed record shares its position; False also if there are too many to check.

    Failed records have distinct positions, and no other record has one of these.
    """
    failures = evaluated.failures
    if not failures.is_small:
        return False
    coordinates = [
        (failure.task, failure.entry, failure.position)
        for failure in failures.on_driver
        if failure.position is not None and failure.number > SOURCE
    ]
    positions: dict[tuple[str | None, int], set[int]] = {}
    for task, entry, position in coordinates:
        positions.setdefault((task, entry), set()).add(position)
    if sum(map(len, positions.values())) < len(coordinates):
        return False
    if not coordinates or evaluated.on_driver:
        return True
    if len(coordinates) > _LISTED_RECORDS or len(positions) > _LISTED_TASKS:
        return False
    is_at_one = " OR ".join(
        _is_at(task, entry, of_task) for (task, entry), of_task in positions.items()
    )
    return failures.has_no_other_rows(
        pipeline, _has_passed() & F.expr(f"({is_at_one})"), limit=examples
    )


def _is_at(task: str | None, entry: int, positions: Collection[int]) -> str:
    """Return, as SQL, whether a row is at one of a task's positions."""
    key = text_literal(task)
    # The position first: it excludes most rows.
    return f"({is_in(POSITION, positions)} AND {ENTRY} = {entry} AND {TASK} <=> {key})"


@cache
def _has_passed() -> Column:
    """Return whether a row belongs to an evaluated record that did not fail."""
    outcome = F.col(OUTCOME)
    return (F.col(ORDINAL) == 0) & (outcome.isNull() | (outcome == FILTERED))


def _shared(evaluated: Evaluated) -> DataFrame:
    """Return the coordinates of failed records that another record shares."""
    records = evaluated.frame.where(
        (F.col(ORDINAL) == 0) & F.col(POSITION).isNotNull() & _is_evaluated()
    )
    failed = records.where(F.col(OUTCOME) > SOURCE).select(*COORDINATES)
    if evaluated.failed <= BROADCAST_RECORDS:
        failed = F.broadcast(failed)
    suspects = join_records(records.select(*COORDINATES), failed, "left_semi")
    return suspects.groupBy(*COORDINATES).count().where("count > 1").drop("count")


def _is_evaluated() -> Column:
    outcome = F.col(OUTCOME)
    return outcome.isNull() | (outcome == FILTERED) | (outcome > SOURCE)

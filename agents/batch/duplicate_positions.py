"""Fail records that share the position of a failed record: they cannot be told apart.

The position matters only when its record fails: for skipping it in a replay, reporting it, or
pausing at it. Positions of successful records are not checked.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.batch.record_atomicity import BROADCAST_RECORDS
from arrester.agents.batch.slow_path import Evaluated
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.executor.columns import (
    ENTRY,
    ERROR,
    ERROR_TYPE,
    FATE,
    FILTERED,
    ORDINAL,
    POSITION,
    SOURCE,
    TASK,
)
from arrester.agents.failures.failure_set import has_failed, is_in
from arrester.agents.spark.local_checkpoint import checkpointed, releasing

_COORDINATES = (TASK, ENTRY, POSITION)
_SHARED = "__arrester_shared"
#: For at most this many failed records, in this many tasks, an expression names the positions.
_LISTED, _LISTED_TASKS = 5_000, 50


def fail_shared_positions(evaluated: Evaluated, pipeline: Pipeline, *, examples: int) -> Evaluated:
    """Return `evaluated` with all records failed that share the position of a failed one.

    If there are none, `examples` of each cause are collected with the failures.
    """
    if not evaluated.failed or _have_their_own(evaluated, pipeline, examples):
        return evaluated
    shared = _shared(evaluated)
    if shared.isEmpty():
        return evaluated
    with releasing() as kept:
        kept.append(checkpointed(shared))
        # A join may reorder rows each time, and the order identifies failed records.
        kept.append(checkpointed(_with_failed(evaluated.frame, kept[0])))
        failed = kept[1].where(has_failed()).count()
        frame = kept.pop()
    blocks = (*evaluated.blocks, frame)
    return replace(evaluated.with_frame(frame, failed=failed), blocks=blocks)


def _with_failed(frame: DataFrame, shared: DataFrame) -> DataFrame:
    """Return the rows with all records failed whose coordinates are in `shared`."""
    marked = _joined(frame, shared.withColumn(_SHARED, F.lit(True)), "left")
    here = F.coalesce(F.col(_SHARED), F.lit(False)) & _is_evaluated()
    nothing = F.lit(None).cast(ERROR_TYPE)
    responder = {
        FATE: F.when(here, F.lit(SOURCE)).otherwise(F.col(FATE)),
        ERROR: F.when(here, nothing).otherwise(F.col(ERROR)),
    }
    return marked.withColumns(responder).select(*frame.columns)


def _have_their_own(evaluated: Evaluated, pipeline: Pipeline, examples: int) -> bool:
    """Whether no failed record shares its position; False also if there are too many to check.

    Failed records have distinct positions, and no other record has one of these.
    """
    failures = evaluated.failures
    if not failures.few or evaluated.failed > _LISTED:
        return False
    rows = 0
    places: dict[tuple[str | None, int], set[int]] = {}
    for each in failures.listed:
        if each.position is not None and each.number > SOURCE:
            rows += 1
            places.setdefault((each.task, each.entry), set()).add(each.position)
    if sum(map(len, places.values())) < rows or len(places) > _LISTED_TASKS:
        return False
    if not rows:
        return True
    here = " OR ".join(_is_at(*each, some) for each, some in places.items())
    return failures.none_other_than(pipeline, _has_passed() & F.expr(f"({here})"), limit=examples)


def _is_at(task: str | None, entry: int, positions: Collection[int]) -> str:
    """Return, as SQL, whether a row is at one of a task's positions."""
    key = "NULL" if task is None else f"CAST(X'{task.encode().hex()}' AS STRING)"
    # The position first: it excludes most rows.
    return f"({is_in(POSITION, positions)} AND {ENTRY} = {entry} AND {TASK} <=> {key})"


@cache
def _has_passed() -> Column:
    """Return whether a row belongs to an evaluated record that did not fail."""
    fate = F.col(FATE)
    return (F.col(ORDINAL) == 0) & (fate.isNull() | (fate == FILTERED))


def _shared(evaluated: Evaluated) -> DataFrame:
    """Return the coordinates of failed records that another record shares."""
    records = evaluated.frame.where(
        (F.col(ORDINAL) == 0) & F.col(POSITION).isNotNull() & _is_evaluated()
    )
    failed = records.where(F.col(FATE) > SOURCE).select(*_COORDINATES)
    if evaluated.failed <= BROADCAST_RECORDS:
        failed = F.broadcast(failed)
    suspects = _joined(records.select(*_COORDINATES), failed, "left_semi")
    return suspects.groupBy(*_COORDINATES).count().where("count > 1").drop("count")


def _joined(frame: DataFrame, coordinates: DataFrame, how: str) -> DataFrame:
    names = {name: f"{name}_too" for name in _COORDINATES}
    same = [F.col(ours).eqNullSafe(F.col(other)) for ours, other in names.items()]
    return frame.join(coordinates.withColumnsRenamed(names), same, how)


def _is_evaluated() -> Column:
    fate = F.col(FATE)
    return fate.isNull() | (fate == FILTERED) | (fate > SOURCE)

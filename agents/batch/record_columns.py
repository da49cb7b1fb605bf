"""Internal columns of a record before its steps: task, position and known decisions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.batch.record_atomicity import broadcast_if_small
from arrester.agents.definition.coordinates import SourceCoordinates
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.execution.step_segments import is_ours, quoted, where_kept
from arrester.agents.executor.columns import (
    ENTRY,
    ERROR,
    ERROR_TYPE,
    FATE,
    HELD,
    INTERNAL,
    ORDINAL,
    POSITION,
    POSITION_RAISED,
    RETRIES,
    ROW,
    SOURCE,
    TASK,
    TASK_RAISED,
)
from arrester.agents.failures.pause_offsets import is_one_of
from arrester.agents.spark.error_columns import error_column, error_row
from arrester.agents.spark.errors import Problem
from arrester.agents.spark.try_eval import VALUE, guarded
from arrester.controlplane.domain.identity.names import KEY_MAX_BYTES

#: Beside a decision mark: the outcome that is known before evaluation.
MARK = "__arrester_mark"
#: For this many pipelines the Columns are cached.
_KEPT = 64
_TASK_ATTEMPT = "__arrester_task_attempt"
_POSITION_ATTEMPT = "__arrester_position_attempt"


def task_key(raw: Column | None) -> Column:
    """Return the task's key as text; a long one is bounded by `names.bounded_key`.

    Bytes that are not UTF-8 become `0x…`: the driver could not pass such a key to Spark.
    """
    if raw is None:
        return F.lit(None).cast("string")
    raw = raw.cast("string")
    as_hex = F.concat(F.lit("0x"), F.hex(raw.cast("binary")))
    key = F.when(F.is_valid_utf8(raw), raw).otherwise(as_hex)
    long = F.concat(F.substring(key, 1, 64), F.lit("…"), F.sha2(key.cast("binary"), 256))
    return F.when(F.octet_length(key) > KEY_MAX_BYTES, long).otherwise(key)


def prepared(
    source: DataFrame,
    pipeline: Pipeline,
    blocked: Collection[str | None],
    marks: DataFrame | None,
) -> DataFrame:
    """Add the internal columns that cannot be derived later.

    A record with an unknown task has no position either: it is in no task, not in the global one.
    """
    plain = pipeline.plain
    if plain is None or marks is not None:
        theirs = [quoted(name) for name in source.columns if name != ENTRY]
        return _with_all(source, pipeline, theirs, blocked, marks)
    if blocked:
        nowhere, fate = quoted(plain.position).isNull(), F.lit(SOURCE)
        task = task_key(plain.key(quoted))
        made = F.when(is_one_of(task, blocked), F.lit(HELD)).when(nowhere, fate)
        return source.select(made.alias(FATE), "*")
    return source.select(_fate(plain), "*")


# Cached: making a Column takes many calls to the JVM.
@lru_cache(maxsize=_KEPT)
def _fate(plain: SourceCoordinates) -> Column:
    return F.when(quoted(plain.position).isNull(), F.lit(SOURCE)).alias(FATE)


def with_all(frame: DataFrame, names: Sequence[str], plain: SourceCoordinates | None) -> DataFrame:
    """Return an evaluated frame with all internal columns, at no cost for successful rows.

    `names` are the columns of the source.
    """
    return frame.select(*_columns(tuple(frame.columns), tuple(names), plain))


@lru_cache(maxsize=_KEPT)
def _columns(
    columns: tuple[str, ...], names: tuple[str, ...], plain: SourceCoordinates | None
) -> tuple[Column, ...]:
    kept = where_kept(columns, names)
    task = None if plain is None else plain.key(lambda name: quoted(kept[name]))
    position = F.lit(None) if plain is None else quoted(kept[plain.position])
    made = {
        ROW: F.struct(*[quoted(kept[name]).alias(name) for name in names]),
        TASK: task_key(task),
        POSITION: position.cast("long"),
        ENTRY: F.lit(0),
        ERROR: F.lit(None).cast(ERROR_TYPE),
        ORDINAL: F.lit(0),
        RETRIES: F.lit(0).cast("long"),
    }
    ours = [F.col(name) if name in columns else made[name].alias(name) for name in INTERNAL]
    return (*ours, *[quoted(name) for name in columns if not is_ours(name)])


def _with_all(
    source: DataFrame,
    pipeline: Pipeline,
    theirs: Sequence[Column],
    blocked: Collection[str | None],
    marks: DataFrame | None,
) -> DataFrame:
    never = F.lit(False)
    frame = source.select(
        guarded(source, task_key(pipeline.task), unless=never).alias(_TASK_ATTEMPT),
        guarded(source, pipeline.position.cast("long"), unless=never).alias(_POSITION_ATTEMPT),
        (F.col(ENTRY) if ENTRY in source.columns else F.lit(0)).alias(ENTRY),
        *theirs,
    )
    no_task = F.col(_TASK_ATTEMPT).isNull()
    frame = frame.select(
        F.col(_TASK_ATTEMPT)[VALUE].alias(TASK),
        F.when(~no_task, F.col(_POSITION_ATTEMPT)[VALUE]).alias(POSITION),
        ENTRY,
        F.when(no_task, _raised("task"))
        .when(F.col(_POSITION_ATTEMPT).isNull(), _raised("position"))
        .alias(ERROR),
        *theirs,
    )
    mark = F.lit(None).cast("int")
    if marks is not None:
        frame, mark = _marked(frame, marks), F.col(MARK)
    fate = (
        F.when(mark.isNotNull(), mark)
        .when(F.col(ERROR)["exception_class"] == TASK_RAISED, F.lit(SOURCE))
        .when(is_one_of(F.col(TASK), blocked), F.lit(HELD))
        .when(F.col(POSITION).isNull(), F.lit(SOURCE))
    )
    return frame.select(
        TASK,
        POSITION,
        ENTRY,
        fate.alias(FATE),
        F.when(fate == SOURCE, F.col(ERROR)).alias(ERROR),
        *theirs,
    )


def _raised(what: str) -> Column:
    """Return the error of a record without a usable task or position."""
    said = Problem(
        exception_class=TASK_RAISED if what == "task" else POSITION_RAISED,
        message=f"the expression of the {what} raised; a record needs its {what} "
        "to be paused and resumed at",
    )
    return error_column(error_row(said))


def _marked(frame: DataFrame, marks: DataFrame) -> DataFrame:
    names = {name: f"{name}_marked" for name in (TASK, ENTRY, POSITION)}
    marks = marks.groupBy(*names).agg(F.min(MARK).alias(MARK))
    same = [F.col(ours).eqNullSafe(F.col(other)) for ours, other in names.items()]
    right = broadcast_if_small(marks.withColumnsRenamed(names))
    return frame.join(right, same, "left").drop(*names.values())

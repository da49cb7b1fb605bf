"""Internal columns of records: task, position, known decisions; and records as a whole.

A record fails or passes as a whole, also if it became several rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import pairwise

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.definition.coordinates import SourceCoordinates
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.steps import Process, Step, Transform
from arrester.agents.execution.row_steps import is_internal, source_columns
from arrester.agents.failures.pause_offsets import is_task_in
from arrester.agents.spark.errors import Problem, error_column, error_row
from arrester.agents.spark.frames.column_names import quoted, with_columns_named
from arrester.agents.spark.frames.local_frame import local_frame
from arrester.agents.spark.frames.utf8 import is_valid_utf8
from arrester.agents.spark.jvm.plans.try_eval import VALUE, guarded
from arrester.agents.worker.columns import (
    ENTRY,
    ERROR,
    ERROR_TYPE,
    FILTERED,
    HELD,
    INTERNAL,
    ORDINAL,
    OUTCOME,
    POSITION,
    POSITION_RAISED,
    RETRIES,
    ROW,
    SOURCE,
    TASK,
    TASK_RAISED,
)
from arrester.domain.identity.names import KEY_MAX_BYTES

#: In a frame of decision marks: the outcome that is known before evaluation.
MARK = "__arrester_mark"
#: The columns that identify a record.
COORDINATES = (TASK, POSITION, ENTRY)
#: Up to this many records are broadcast, even if Spark's estimate is larger.
BROADCAST_RECORDS = 200_000
#: The number of pipelines whose Columns are cached.
_CACHED_PIPELINES = 64
#: Up to this many blocked tasks are listed in an expression.
_LISTED_TASKS = 200
_BLOCKED = "__arrester_blocked"
_FAILED = "__arrester_failed"
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
    key = F.when(is_valid_utf8(raw), raw).otherwise(as_hex)
    bounded = F.concat(F.substring(key, 1, 64), F.lit("…"), F.sha2(key.cast("binary"), 256))
    return F.when(F.octet_length(key) > KEY_MAX_BYTES, bounded).otherwise(key)


def with_outcome(
    source: DataFrame,
    pipeline: Pipeline,
    blocked: Collection[str | None],
    marks: DataFrame | None,
) -> DataFrame:
    """Add the internal columns that cannot be derived later.

    A record whose task is unknown has no position, either. It is in no task, not even the global
    one.
    """
    coordinates = pipeline.source_coordinates
    if coordinates is None or marks is not None:
        return _with_guarded_coordinates(source, pipeline, blocked, marks)
    if len(blocked) <= _LISTED_TASKS:
        return source.select(_outcome(coordinates, tuple(blocked)), "*")
    frame, is_blocked = _with_blocked(source, task_key(coordinates.key(quoted)), blocked)
    outcome = F.when(is_blocked, F.lit(HELD)).otherwise(_outcome(coordinates, ()))
    return frame.select(outcome.alias(OUTCOME), "*").drop(_BLOCKED)


def _with_blocked(
    frame: DataFrame, task: Column, blocked: Collection[str | None]
) -> tuple[DataFrame, Column]:
    """Return a frame and, for its rows, whether the task is one of the `blocked`.

    Many are joined: in an expression each of them would take a JVM call, and Spark keeps its text.
    """
    if len(blocked) <= _LISTED_TASKS:
        return frame, is_task_in(task, blocked)
    keys = local_frame(
        frame.sparkSession,
        [(key,) for key in blocked if key is not None],
        T.StructType().add(_BLOCKED, T.StringType()),
    )
    joined = frame.join(F.broadcast(keys), task == F.col(_BLOCKED), "left")
    is_named = F.col(_BLOCKED).isNotNull()
    return joined, F.when(task.isNull(), F.lit(None in blocked)).otherwise(is_named)


# Cached: making a Column takes many calls to the JVM.
@lru_cache(maxsize=_CACHED_PIPELINES)
def _outcome(coordinates: SourceCoordinates, blocked: tuple[str | None, ...]) -> Column:
    has_no_position, source = quoted(coordinates.position).isNull(), F.lit(SOURCE)
    if not blocked:
        return F.when(has_no_position, source).alias(OUTCOME)
    is_blocked = is_task_in(task_key(coordinates.key(quoted)), blocked)
    return F.when(is_blocked, F.lit(HELD)).when(has_no_position, source).alias(OUTCOME)


def present_task(rows: DataFrame, pipeline: Pipeline) -> Column:
    """Return the task's key of some rows of the source, NULL if its expression raises."""
    coordinates = pipeline.source_coordinates
    if coordinates is not None:
        return task_key(coordinates.key(quoted))
    return guarded(rows, task_key(pipeline.task), unless=F.lit(False))[VALUE]


def with_internal_columns(
    frame: DataFrame, source_names: Sequence[str], coordinates: SourceCoordinates | None
) -> DataFrame:
    """Return an evaluated frame with all internal columns.

    The missing ones are derived from the source's columns, so they use no storage.
    """
    return frame.select(*_all_columns(tuple(frame.columns), tuple(source_names), coordinates))


@lru_cache(maxsize=_CACHED_PIPELINES)
def _all_columns(
    columns: tuple[str, ...], source_names: tuple[str, ...], coordinates: SourceCoordinates | None
) -> tuple[Column, ...]:
    present = source_columns(columns, source_names)
    task = None if coordinates is None else coordinates.key(lambda name: quoted(present[name]))
    position = F.lit(None) if coordinates is None else quoted(present[coordinates.position])
    defaults = {
        ROW: F.struct(*[quoted(present[name]).alias(name) for name in source_names]),
        TASK: task_key(task),
        POSITION: position.cast("long"),
        ENTRY: F.lit(0),
        ERROR: F.lit(None).cast(ERROR_TYPE),
        ORDINAL: F.lit(0),
        RETRIES: F.lit(0).cast("long"),
    }
    internal = [F.col(name) if name in columns else defaults[name].alias(name) for name in INTERNAL]
    return (*internal, *[quoted(name) for name in columns if not is_internal(name)])


def _with_guarded_coordinates(
    source: DataFrame,
    pipeline: Pipeline,
    blocked: Collection[str | None],
    marks: DataFrame | None,
) -> DataFrame:
    never = F.lit(False)
    columns = [quoted(name) for name in source.columns if name != ENTRY]
    frame = source.select(
        guarded(source, task_key(pipeline.task), unless=never).alias(_TASK_ATTEMPT),
        guarded(source, pipeline.position.cast("long"), unless=never).alias(_POSITION_ATTEMPT),
        (F.col(ENTRY) if ENTRY in source.columns else F.lit(0)).alias(ENTRY),
        *columns,
    )
    no_task = F.col(_TASK_ATTEMPT).isNull()
    frame = frame.select(
        F.col(_TASK_ATTEMPT)[VALUE].alias(TASK),
        F.when(~no_task, F.col(_POSITION_ATTEMPT)[VALUE]).alias(POSITION),
        ENTRY,
        F.when(no_task, _coordinate_error("task"))
        .when(F.col(_POSITION_ATTEMPT).isNull(), _coordinate_error("position"))
        .alias(ERROR),
        *columns,
    )
    mark = F.lit(None).cast("int")
    if marks is not None:
        marks = marks.groupBy(*COORDINATES).agg(F.min(MARK).alias(MARK))
        frame, mark = join_records(frame, broadcast_if_small(marks), "left"), F.col(MARK)
    frame, is_blocked = _with_blocked(frame, F.col(TASK), blocked)
    outcome = (
        F.when(mark.isNotNull(), mark)
        .when(F.col(ERROR)["exception_class"] == TASK_RAISED, F.lit(SOURCE))
        .when(is_blocked, F.lit(HELD))
        .when(F.col(POSITION).isNull(), F.lit(SOURCE))
    )
    error = F.when(outcome == SOURCE, F.col(ERROR)).alias(ERROR)
    return frame.select(*COORDINATES, outcome.alias(OUTCOME), error, *columns)


def _coordinate_error(kind: str) -> Column:
    """Return the error of a record whose task or position raised."""
    problem = Problem(
        exception_class=TASK_RAISED if kind == "task" else POSITION_RAISED,
        message=f"the expression of the {kind} raised; a record needs its {kind} "
        "to be paused and resumed at",
    )
    return error_column(error_row(problem))


# Records as a whole


def may_split_records(steps: Sequence[Step]) -> bool:
    """Whether rows of one record can fail separately: a step follows one that adds rows.

    Adjacent Python steps treat the record as a whole themselves.
    """
    return any(
        isinstance(one, Transform) or (isinstance(one, Process) and not isinstance(other, Process))
        for one, other in pairwise(steps)
    )


def make_atomic(frame: DataFrame) -> DataFrame:
    """Return an evaluated frame in which a record with a failed row has failed.

    Its first row gets the failure of the earliest step; its other rows become FILTERED.
    """
    first = F.min_by(F.struct(OUTCOME, ORDINAL, ERROR), F.struct(OUTCOME, ORDINAL))
    failed = frame.where(F.col(OUTCOME) > SOURCE).groupBy(*COORDINATES).agg(first.alias(_FAILED))
    joined = join_records(frame, broadcast_if_small(failed), "left")
    has_failed, is_first = F.col(_FAILED).isNotNull(), F.col(ORDINAL) == 0

    def of_record(name: str, other_rows: Column) -> Column:
        failure = F.when(has_failed & is_first, F.col(_FAILED)[name])
        return failure.when(has_failed, other_rows).otherwise(F.col(name))

    columns = {OUTCOME: of_record(OUTCOME, F.lit(FILTERED)), ERROR: of_record(ERROR, F.lit(None))}
    return with_columns_named(joined.withColumns(columns), frame.columns)


def join_records(frame: DataFrame, records: DataFrame, how: str) -> DataFrame:
    """Join a frame with one row per record, by the record's coordinates. NULL equals NULL."""
    names = {name: f"{name}_of_record" for name in COORDINATES}
    is_same_record = [F.col(name).eqNullSafe(F.col(other)) for name, other in names.items()]
    joined = frame.join(records.withColumnsRenamed(names), is_same_record, how)
    return joined.drop(*names.values())


def broadcast_if_small(frame: DataFrame) -> DataFrame:
    """Return a small frame marked for broadcast: such a join keeps the order of the other side."""
    is_small = frame.limit(BROADCAST_RECORDS + 1).count() <= BROADCAST_RECORDS
    return F.broadcast(frame) if is_small else frame

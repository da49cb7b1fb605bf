"""The guarded steps of a micro-batch, grouped into segments of one kind.

Each row carries the internal columns of its record. A record's first row has ORDINAL 0 and
represents it. A record fails or passes as a whole (`batch.record_atomicity`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cache, lru_cache
from itertools import groupby

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.definition.steps import Columns, Deserialize, Native, Process, Step, Transform
from arrester.agents.executor.columns import (
    ERROR,
    ERROR_TYPE,
    FATE,
    ORDINAL,
    PREFIX,
    RETRIES,
    SOURCE,
)
from arrester.agents.spark.common_subexpressions import SHARED, Ready
from arrester.agents.spark.ship_executor import shipped, shipped_rules
from arrester.agents.spark.try_eval import guarded_together
from arrester.controlplane.domain.error_policy.policy import Policy

_ATTEMPT = "__arrester_attempt"
#: For this many steps the Columns are cached.
_KEPT = 256
#: What Python steps report about each row.
_TOLD = {
    FATE: T.StructField(FATE, T.IntegerType()),
    ERROR: T.StructField(ERROR, ERROR_TYPE),
    ORDINAL: T.StructField(ORDINAL, T.IntegerType()),
    RETRIES: T.StructField(RETRIES, T.LongType()),
}


def segments(steps: Sequence[Step], *, first: int) -> Iterator[tuple[int, Sequence[Step]]]:
    """Yield segments of steps of one kind, each with the number of its first step; transforms
    alone."""
    number = first
    for _, run in groupby(enumerate(steps), key=lambda each: _kind(*each)):
        segment = [step for _, step in run]
        yield number, segment
        number += len(segment)


def _kind(index: int, step: Step) -> object:
    return (type(step), index) if isinstance(step, Transform) else isinstance(step, Process)


def after_steps(
    frame: DataFrame,
    steps: Sequence[Step],
    *,
    policy: Policy,
    first: int = SOURCE + 1,
    source: Sequence[str] = (),
) -> DataFrame:
    """Return `frame` after native and Python `steps`, the first of which has the number `first`.

    Failed rows pass unchanged. Adjacent Python steps run in one pass over Arrow batches. Internal
    columns stay with their record. So do the columns `source`, which a step may replace: then they
    have their `kept_name`.
    """
    for start, segment in segments(steps, first=first):
        numbered = list(enumerate(segment, start=start))
        if isinstance(segment[0], Process):
            frame = _after_python(frame, numbered, policy, source)
            continue
        for number, step in numbered:
            assert isinstance(step, Deserialize | Columns)
            frame = _after_native(_with_kept(frame, step, source), number, step)
    return frame


def kept_name(number: int) -> str:
    """Return the name of a source column after a step has replaced it."""
    return f"{PREFIX}source_{number}"


def where_kept(columns: Collection[str], source: Sequence[str]) -> dict[str, str]:
    """Return the present names of the source's columns in a frame."""
    there = set(columns)
    return {
        name: kept_name(number) if kept_name(number) in there else name
        for number, name in enumerate(source)
    }


def _with_kept(frame: DataFrame, step: Native, source: Sequence[str]) -> DataFrame:
    """Keep the source columns that the step is about to replace."""
    replaced = {name.lower() for name in step.expressions}
    kept = where_kept(frame.columns, source)
    copies = {
        kept_name(number): quoted(name)
        for number, name in enumerate(source)
        if name.lower() in replaced and kept[name] == name
    }
    return frame.withColumns(copies) if copies else frame


def _after_native(frame: DataFrame, number: int, step: Native) -> DataFrame:
    if step.ready is None:
        attempt = guarded_together(frame, step.expressions, unless=_is_decided())
        frame = frame.withColumn(_ATTEMPT, attempt)
    else:
        for columns in _attempting(step.ready):
            frame = frame.select(*columns)
    made = frame.withColumns(_of_attempt(number, tuple(step.expressions)))
    return made.drop(_ATTEMPT, SHARED)


# Cached for all micro-batches: making a Column takes many calls to the JVM.
@cache
def _is_decided() -> Column:
    return F.col(FATE).isNotNull()


@lru_cache(maxsize=_KEPT)
def _attempting(ready: Ready) -> list[list[Column]]:
    return ready.layers(_ATTEMPT, unless=_is_decided())


@lru_cache(maxsize=_KEPT)
def _of_attempt(number: int, names: tuple[str, ...]) -> dict[str, Column]:
    """Return the columns after an attempt at the step `number`."""
    failed = F.col(FATE).isNull() & F.col(_ATTEMPT).isNull()
    fate = F.when(failed, F.lit(number)).otherwise(F.col(FATE))
    return {FATE: fate} | {name: F.col(_ATTEMPT).getField(name) for name in names}


def _after_python(
    frame: DataFrame,
    segment: Sequence[tuple[int, Step]],
    policy: Policy,
    source: Sequence[str],
) -> DataFrame:
    worker = shipped("map_in_arrow")
    kept = where_kept(frame.columns, source)
    pairs = [(kept[name], kept_name(number)) for number, name in enumerate(source)]
    ours = {name for name in frame.columns if is_ours(name)} - {*_TOLD, *kept.values()}
    pairs += [(name, name) for name in sorted(ours)]
    carried = [T.StructField(new, frame.schema[name].dataType) for name, new in pairs]
    guarded_steps = worker.GuardedSteps(
        python_steps(segment),
        timezone=frame.sparkSession.conf.get("spark.sql.session.timeZone"),
        rules=shipped_rules(policy),
        carried=pairs,
    )
    # A failed record's columns are NULL, so Spark's schema must be nullable.
    made = [
        T.StructField(field.name, field.dataType, True) for field in python_schema(segment).fields
    ]
    return frame.mapInArrow(guarded_steps, T.StructType([*carried, *_TOLD.values(), *made]))


def python_steps(segment: Sequence[tuple[int, Step]]) -> list[object]:
    """Return numbered Python steps in the form that executors take."""
    worker = shipped("map_in_arrow")
    return [
        worker.Step(
            number=number,
            function=step.function,
            schema_json=step.schema.json(),
            retriable=step.retriable,
        )
        for number, step in segment
        if isinstance(step, Process)
    ]


def python_schema(segment: Sequence[tuple[int, Step]]) -> T.StructType:
    """Return the columns that adjacent Python steps return."""
    step = segment[-1][1]
    assert isinstance(step, Process)
    return step.schema


def is_ours(name: str) -> bool:
    """Whether a column is internal."""
    return name.startswith(PREFIX)


def quoted(name: str) -> Column:
    """Return the column of exactly this name, dots included."""
    return F.col(in_quotes(name))


def in_quotes(name: str) -> str:
    """Return a quoted column name for SQL."""
    return "`" + name.replace("`", "``") + "`"

"""The guarded steps of a pipeline over the rows of a micro-batch, in the order of their kinds.

Rows travel with their record's carried columns. A record's first row has ORDINAL 0 and speaks for
it; what a step makes of one record fails or passes as a whole (`agents.whole`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from agents.guard import guarded_together
from agents.shipping import shipped, shipped_rules
from agents.steps import Native, Process, Step
from agents.worker.columns import FATE, INTERNAL, SOURCE
from controlplane.domain.policy import Policy

_ATTEMPT = "__arrester_attempt"


def after_steps(
    frame: DataFrame, steps: Sequence[Step], *, policy: Policy, first: int = SOURCE + 1
) -> DataFrame:
    """Return `frame` after `steps`, the first of which has the number `first`.

    Rows that have a fate pass untouched. Python steps in a row run in one pass over Arrow batches.
    """
    numbered = enumerate(steps, start=first)
    for is_python, segment in groupby(numbered, key=lambda each: isinstance(each[1], Process)):
        if is_python:
            frame = _after_python(frame, list(segment), policy)
            continue
        for number, step in segment:
            assert not isinstance(step, Process)
            frame = _after_native(frame, number, step)
    return frame


def _after_native(frame: DataFrame, number: int, step: Native) -> DataFrame:
    decided = F.col(FATE).isNotNull()
    attempt = guarded_together(frame, step.expressions, unless=decided)
    failed = F.col(FATE).isNull() & F.col(_ATTEMPT).isNull()
    made = {name: F.col(_ATTEMPT).getField(name) for name in step.expressions}
    fate = F.when(failed, F.lit(number)).otherwise(F.col(FATE))
    return frame.withColumn(_ATTEMPT, attempt).withColumns({FATE: fate, **made}).drop(_ATTEMPT)


def _after_python(
    frame: DataFrame, segment: Sequence[tuple[int, Step]], policy: Policy
) -> DataFrame:
    worker = shipped("records")
    processes = [(number, step) for number, step in segment if isinstance(step, Process)]
    steps = [
        worker.Step(
            number=number,
            function=step.function,
            schema_json=step.schema.json(),
            retriable=step.retriable,
        )
        for number, step in processes
    ]
    timezone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    carried = [frame.schema[name] for name in INTERNAL]
    # A failed record's columns are NULL on their way, so the shape is nullable for Spark.
    made = [
        T.StructField(field.name, field.dataType, True) for field in processes[-1][1].schema.fields
    ]
    guarded_steps = worker.GuardedSteps(steps, timezone=timezone, rules=shipped_rules(policy))
    return frame.mapInArrow(guarded_steps, T.StructType([*carried, *made]))

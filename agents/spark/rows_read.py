"""Whether a function of a DataFrame has read all of its rows.

A function may return without an exception although it read nothing, only some rows, or caught the
exception of a failed job. Executors count the rows that are read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.spark.catalyst import PROJECT, analysed, frame_of, to_list, to_seq
from arrester.agents.spark.jvm import jvm_class
from arrester.agents.spark.local_checkpoint import row_count
from arrester.controlplane.domain.errors import ArresterError

#: Operators and actions that may end before the last row of their input.
_STOPS_EARLY = re.compile(
    r"\b(?:(?:Local|Global|Collect)Limit|CollectTail|to(?:Local|Python)Iterator)\b"
)
_ENDED = frozenset({"SUCCEEDED", "FAILED"})
#: How long to wait until Spark's status store has the end of the jobs.
_STATUS_SECONDS = 0.1
_STATUS_TICK_SECONDS = 0.002
_ONE = "__arrester_one"
_CATALYST = "org.apache.spark.sql.catalyst"
_EXPRESSIONS = f"{_CATALYST}.expressions"
_ACCUMULATOR = "org.apache.spark.util.LongAccumulator"


class RowsUnread(ArresterError):
    """A function returned without having read all rows of its DataFrame."""

    def __init__(self, *, read: int, given: int) -> None:
        super().__init__(
            f"it returned after reading {read:,} of {given:,} rows: finish the write before it "
            "returns (.save(), .join() of threads), do not catch its exceptions, or declare "
            "partial=True if it reads a part on purpose"
        )


def call_with_all_rows(function: Callable[[DataFrame], object], frame: DataFrame) -> None:
    """Call `function` with `frame`; raises RowsUnread if it returns before it has read all rows.

    It may read them more than once. If its jobs do not show that it read all, the rows are counted
    by one more job, which raises what the evaluation of `frame` raises.
    """
    context = frame.sparkSession.sparkContext
    counter = row_counter(context, name=None, counts_failed_tasks=False)
    tag = f"arrester-read-{uuid4().hex}"
    context.addJobTag(tag)
    try:
        function(with_counter(frame, counter))
    finally:
        context.removeJobTag(tag)
    if counter.sum() and _reads_all(frame, tag):
        return
    given, read = row_count(frame), int(counter.sum())
    if read < given:
        raise RowsUnread(read=read, given=given)


def row_counter(context: Any, *, name: str | None, counts_failed_tasks: bool) -> Any:
    """Return a new accumulator; with a name, Spark's status of tasks contains it."""
    jvm = context._jvm
    counter = jvm_class(jvm, _ACCUMULATOR)()
    named = jvm_class(jvm, "scala.Option").apply(name)
    counter.register(context._jsc.sc(), named, counts_failed_tasks)
    return counter


def with_counter(frame: DataFrame, counter: Any) -> DataFrame:
    """Return the same rows, each counted when it is read."""
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    parts = _parts(jvm)
    plan = analysed(frame)
    filter_ = jvm_class(jvm, f"{_CATALYST}.plans.logical.Filter")
    project = jvm_class(jvm, PROJECT)
    with_ones = project(parts.columns, plan)
    return frame_of(spark, project(plan.output(), filter_(parts.counted(jvm, counter), with_ones)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The parts of a counting plan that are the same for each frame.

    Each is a call to the JVM, and some take several.
    """

    #: That any row is counted.
    condition: Any
    #: All columns, and a column of ones.
    columns: Any
    #: What a "bean" is initialized with: each one is added.
    setters: Any
    #: The type of an accumulator.
    object_type: Any
    #: The type of a condition.
    boolean: Any
    no_items: Any

    def counted(self, jvm: Any, counter: Any) -> Any:
        """Return a condition that holds for each row, and adds 1 to the accumulator `counter`."""
        literal = jvm_class(jvm, f"{_EXPRESSIONS}.Literal")(counter, self.object_type)
        # This expression, which calls bean setters, can call a method without a result in generated
        # code.
        added = jvm_class(jvm, f"{_EXPRESSIONS}.objects.InitializeJavaBean")(literal, self.setters)
        is_zero = jvm_class(jvm, f"{_EXPRESSIONS}.objects.Invoke")(
            *(added, "isZero", self.boolean, self.no_items, self.no_items, False, False, False)
        )
        is_counted = jvm_class(jvm, f"{_EXPRESSIONS}.Not")(is_zero)
        return jvm_class(jvm, f"{_EXPRESSIONS}.And")(self.condition, is_counted)


@lru_cache(maxsize=1)
def _parts(jvm: Any) -> _Parts:
    partition_id = F.spark_partition_id()
    # Non-deterministic: the optimizer moves the count neither below Python nor into other filters.
    one = F.when(partition_id >= 0, 1).otherwise(0).cast("long").alias(_ONE)
    ones = SparkSession.active().range(0).select(one)
    # Analysed once.
    condition = analysed(ones.where(partition_id >= 0)).condition()
    [one_expression] = to_list(analysed(ones).projectList())
    all_columns = jvm_class(jvm, f"{_CATALYST}.analysis.UnresolvedStar")(
        jvm_class(jvm, "scala.Option").empty()
    )
    setters = {"add": one_expression.toAttribute()}
    accumulator = jvm_class(jvm, "java.lang.Class").forName(_ACCUMULATOR)
    return _Parts(
        condition=condition,
        columns=to_seq(jvm, [all_columns, one_expression]),
        setters=jvm_class(jvm, "org.apache.spark.api.python.PythonUtils").toScalaMap(setters),
        object_type=jvm_class(jvm, "org.apache.spark.sql.types.ObjectType")(accumulator),
        boolean=condition.dataType(),
        no_items=to_seq(jvm, []),
    )


def _reads_all(frame: DataFrame, tag: str) -> bool:
    """Whether Spark's status store shows that each job succeeded and read its input to the end."""
    spark = frame.sparkSession
    core: Any = spark.sparkContext._jsc.sc()
    session: Any = spark._jsparkSession
    executions = _executions(core, tag)
    known = session.sharedState().statusStore()
    return bool(executions) and all(
        number is not None and _reads_to_the_end(known.execution(number)) for number in executions
    )


def _executions(core: Any, tag: str) -> set[int | None]:
    """Return the SQL executions of the marked jobs; None for a job that is of none, or that did
    not succeed."""
    deadline = time.monotonic() + _STATUS_SECONDS
    while True:
        numbers = core.statusTracker().getJobIdsForTag(tag)
        jobs = [core.statusStore().jobWithAssociatedSql(number) for number in numbers]
        states = {str(job._1().status()) for job in jobs}
        # The store gets the end of a job after its caller.
        if (jobs and states <= _ENDED) or time.monotonic() > deadline:
            break
        time.sleep(_STATUS_TICK_SECONDS)
    if states != {"SUCCEEDED"}:
        return {None}
    return {job._2().get() if job._2().isDefined() else None for job in jobs}


def _reads_to_the_end(execution: Any) -> bool:
    """Whether no operator of an SQL execution, nor its action, may end before the last row."""
    if not execution.isDefined():
        return False
    known = execution.get()
    text = f"{known.details()} {known.physicalPlanDescription()}"
    return _STOPS_EARLY.search(text) is None

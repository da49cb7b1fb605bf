"""Accumulators of Spark as parts of expressions: executors add values while they evaluate rows."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.classes import jvm_class
from arrester.agents.spark.jvm.plans.catalyst import to_seq

LONG: Final = "org.apache.spark.util.LongAccumulator"
COLLECTION: Final = "org.apache.spark.util.CollectionAccumulator"
_OBJECTS: Final = "org.apache.spark.sql.catalyst.expressions.objects"


def registered(
    spark: SparkSession, class_name: str, *, name: str | None, counts_failed_tasks: bool
) -> Any:
    """Return a new accumulator; with a name, the status of tasks contains it."""
    jvm: Any = spark._jvm
    accumulator = jvm_class(jvm, class_name)()
    context: Any = spark.sparkContext
    java_name = jvm_class(jvm, "scala.Option").apply(name)
    accumulator.register(context._jsc.sc(), java_name, counts_failed_tasks)
    return accumulator


def setters(jvm: Any, value: Any) -> Any:
    """Return the argument of `added` that adds the value of an expression."""
    python_utils = jvm_class(jvm, "org.apache.spark.api.python.PythonUtils")
    return python_utils.toScalaMap({"add": value})


def object_type(jvm: Any, class_name: str) -> Any:
    """Return the type of expressions whose values are objects of a class."""
    of_class = jvm_class(jvm, "java.lang.Class").forName(class_name)
    return jvm_class(jvm, "org.apache.spark.sql.types.ObjectType")(of_class)


def added(jvm: Any, accumulator: Any, kind: Any, values: Any) -> Any:
    """Return an expression that adds values to an accumulator of a type, and returns it.

    Within a Spark task it is the task's own copy, with the values of this task only.
    """
    literal = jvm_class(jvm, "org.apache.spark.sql.catalyst.expressions.Literal")(accumulator, kind)
    # This expression, which calls bean setters, can call a method without a result in generated
    # code.
    return jvm_class(jvm, f"{_OBJECTS}.InitializeJavaBean")(literal, values)


def invoked(jvm: Any, target: Any, method: str, kind: Any) -> Any:
    """Return an expression that calls a method without arguments."""
    nothing = to_seq(jvm, [])
    flags = (False, False, False)
    return jvm_class(jvm, f"{_OBJECTS}.Invoke")(target, method, kind, nothing, nothing, *flags)

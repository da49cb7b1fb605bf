"""The gauges of a driver, as Spark's sinks read them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def gauges(spark: SparkSession, prefix: str) -> dict[str, int]:
    """Return the gauges whose name begins with `prefix`, without it."""
    sources = _metrics_system(spark).getSourcesByName("AccumulatorSource")
    found = {}
    for number in range(sources.size()):
        registered = sources.apply(number).metricRegistry().getGauges()
        for name in registered.keySet():
            if name.startswith(f"{prefix}."):
                found[name.removeprefix(f"{prefix}.")] = registered.get(name).getValue()
    return found


def _metrics_system(spark: SparkSession) -> Any:
    """Return Spark's metrics system.

    py4j would look at all methods of SparkEnv, of which some need classes that Spark does not have.
    """
    jvm: Any = spark._jvm
    context: Any = spark.sparkContext._jsc
    invoke = jvm.java.lang.invoke
    lookup = invoke.MethodHandles.publicLookup()
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    system, env, scala_context = (
        jvm.java.lang.Class.forName(f"org.apache.spark.{name}", False, loader)
        for name in ("metrics.MetricsSystem", "SparkEnv", "SparkContext")
    )
    value = context.sc()
    for owner, name, result in ((scala_context, "env", env), (env, "metricsSystem", system)):
        handle = lookup.findVirtual(owner, name, invoke.MethodType.methodType(result))
        arguments = jvm.java.util.ArrayList()
        arguments.add(value)
        value = handle.invokeWithArguments(arguments)
    return value

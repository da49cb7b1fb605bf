"""Numbers in the metrics system of Spark: its sinks report them, such as the Prometheus servlet.

Spark's `LongAccumulatorSource` is its public way to add a source at run time, without a class in
the JVM and without callbacks into Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any, Final

from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.classes import jvm_class

_SOURCE: Final = "org.apache.spark.metrics.source.LongAccumulatorSource$"
#: By Spark application: its accumulators. A name is registered once; a later agent of the same
#: driver continues it.
_registered: Final[dict[str, dict[str, Any]]] = {}
_lock: Final = Lock()


class MetricSource:
    """The numbers of an agent in the driver of a session."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._values: dict[str, int] = {}

    def set(self, values: Mapping[str, int]) -> None:
        """Set numbers by name; new names become metrics. Raises an error of py4j."""
        with _lock:
            known = _registered.setdefault(self._context.applicationId, {})
            if new := [name for name in values if name not in known]:
                known.update(self._register(new))
            for name, value in values.items():
                if self._values.get(name) != value:
                    known[name].setValue(value)
                    self._values[name] = value

    def _register(self, names: list[str]) -> dict[str, Any]:
        jvm: Any = self._context._jvm
        context: Any = self._context._jsc
        accumulator = jvm_class(jvm, "org.apache.spark.util.LongAccumulator")
        made = {name: accumulator() for name in names}
        java_map = jvm_class(jvm, "java.util.HashMap")()
        for name, each in made.items():
            java_map.put(name, each)
        utils = jvm_class(jvm, "org.apache.spark.api.python.PythonUtils")
        source = getattr(jvm_class(jvm, _SOURCE), "MODULE$")
        source.register(context.sc(), utils.toScalaMap(java_map))
        return made

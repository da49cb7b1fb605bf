"""A hook of the JVM's shutdown, which it runs before Spark stops.

Under `spark-submit` the JVM is the parent of Python, and the process that Kubernetes and YARN send
SIGTERM to. Spark would stop at once, below the pipelines.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.classes import jvm_class

_log = logging.getLogger("arrester.agent")

#: Hadoop runs hooks of a greater priority first. Spark has 40.
_PRIORITY: Final = 100


@contextmanager
def shutdown_hook(
    spark: SparkSession, run: Callable[[], None], *, timeout_seconds: float
) -> Iterator[None]:
    """Let the JVM call `run` when it shuts down, and wait for it, as long as the block lasts.

    Without effect if the JVM does not allow it: some platforms let Python use chosen classes only.
    """
    try:
        manager, hook = _added(spark, run, timeout_seconds)
    except Exception:
        _log.debug("the JVM has no shutdown hook of this agent", exc_info=True)
        yield
        return
    try:
        yield
    finally:
        try:
            manager.removeShutdownHook(hook)
        except Exception:  # the JVM shuts down, or has ended
            _log.debug("the shutdown hook stays", exc_info=True)


def _added(spark: SparkSession, run: Callable[[], None], timeout_seconds: float) -> tuple[Any, Any]:
    context: Any = spark.sparkContext
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
    # It has an identity of its own, by which it is removed, and no exception leaves it, such as
    # that Python has ended.
    hook = jvm_class(context._jvm, "java.util.concurrent.FutureTask")(_Runnable(run), None)
    seconds = jvm_class(context._jvm, "java.util.concurrent.TimeUnit").SECONDS
    manager = jvm_class(context._jvm, "org.apache.hadoop.util.ShutdownHookManager").get()
    manager.addShutdownHook(hook, _PRIORITY, int(timeout_seconds) + 1, seconds)
    return manager, hook


class _Runnable:
    """A function that Java runs."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run

    class Java:
        """What py4j reads."""

        implements: Final = ["java.lang.Runnable"]

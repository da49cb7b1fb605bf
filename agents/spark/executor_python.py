"""Compare the Python of the executors with the driver's, by one small job in the background."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from pyspark.sql import SparkSession

from arrester.agents.spark.job_attempts import JobTag, for_thread, is_cancelled
from arrester.agents.spark.jvm.exceptions.problems import java_line
from arrester.agents.spark.ship_worker_code import shipped
from arrester.agents.worker.environment import Environment, environment

#: What a Python step needs on executors.
REQUIRED: Final = ("pyarrow", "pandas")
#: At most so many tasks look; Spark spreads them over the executors that are free.
_TASKS: Final = 64
#: The job is cancelled after this time, for example if no executor is free.
_SECONDS: Final = 60.0
#: More hosts are counted only.
_HOSTS: Final = 3
_log = logging.getLogger("arrester.agent")
#: By Spark application: the modules that were looked for.
_checked: defaultdict[str, set[str]] = defaultdict(set)
_lock = threading.Lock()


def check_executors(spark: SparkSession, modules: Iterable[str]) -> threading.Thread | None:
    """Start to log what the Python of the executors lacks, once per Spark application and module.

    It neither waits nor raises. Return the thread that does it, None if there is nothing to do.
    """
    context: Any = spark.sparkContext
    with _lock:
        known = _checked[context.applicationId]
        names = sorted({*REQUIRED, *modules} - known)
        known.update(names)
    if not names:
        return None
    thread = threading.Thread(
        target=for_thread(spark, _check),
        args=(spark, names),
        name="arrester-executors",
        daemon=True,
    )
    thread.start()
    return thread


def _check(spark: SparkSession, modules: Sequence[str]) -> None:
    tag = JobTag(spark)
    timer = threading.Timer(_SECONDS, tag.cancel)
    timer.daemon = True
    try:
        timer.start()
        with tag.set():
            found = _environments(spark, modules)
    except Exception as exc:  # of a pipeline's own kind, which reports it; or Spark is stopping
        if not is_cancelled(exc) and (line := java_line(exc)) is not None:
            _log.warning("the Python of the executors could not be checked: %s", line)
        else:
            _log.debug("the Python of the executors could not be checked", exc_info=True)
    else:
        for line in differences(found, environment(modules)):
            _log.warning("%s", line)
    finally:
        timer.cancel()


def _environments(spark: SparkSession, modules: Sequence[str]) -> list[Environment]:
    context: Any = spark.sparkContext
    tasks = max(1, min(_TASKS, context.defaultParallelism))
    looking = partial(shipped("environment").environments, tuple(modules))
    rows = context.parallelize(range(tasks), tasks).mapPartitions(looking).collect()
    return [Environment(*row) for row in rows]


def differences(found: Sequence[Environment], driver: Environment) -> list[str]:
    """Return a line for each Python of executors that lacks a module, or has another version."""
    lines = defaultdict[str, set[str]](set)
    own = dict(driver.modules)
    for each in found:
        missing = [name for name, version in each.modules if version is None]
        others = [
            f"{name} {version} (the driver has {own[name]})"
            for name, version in each.modules
            if version and own[name] and version != own[name]
        ]
        parts = []
        if missing:
            parts.append(f"lacks {', '.join(missing)}")
        if others:
            parts.append(f"has {', '.join(others)}")
        if parts:
            python = f"{each.executable} (Python {each.version})"
            lines[f"{python} on {{hosts}} {' and '.join(parts)}"].add(each.host)
    return [line.replace("{hosts}", _named(hosts)) for line, hosts in lines.items()]


def _named(hosts: set[str]) -> str:
    names = ", ".join(sorted(hosts)[:_HOSTS])
    more = f" and {len(hosts) - _HOSTS} more" if len(hosts) > _HOSTS else ""
    return f"executor{'s' if len(hosts) > 1 else ''} {names}{more}"

"""The thread that sets the metrics of an agent in Spark."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from arrester.agents.config import AgentConfig
from arrester.agents.runtime.spark_metrics import SparkMetrics
from arrester.domain.errors import InvalidConfiguration
from arrester.domain.identity.names import TaskId
from arrester.domain.state.states import Counters, TaskState
from tests.patience import wait_until


class Source:
    """Keeps the values, or raises as py4j does when Spark has ended."""

    def __init__(self, error: Exception | None = None) -> None:
        self.values: dict[str, int] = {}
        self.calls = 0
        self._error = error

    def set(self, values: Mapping[str, int]) -> None:
        self.calls += 1
        if self._error is not None:
            raise self._error
        self.values.update(values)


def task(pipeline: str, *, failed: int, held: int = 0) -> TaskState:
    id = TaskId(application="flights", pipeline=pipeline, checkpoint="c1", key=None)
    counters = Counters(record_failures=failed * 2)
    return TaskState(id=id, failed=failed, held=held, counters=counters)


def test_the_last_values_are_set_before_the_end() -> None:
    source, tasks = Source(), [task("delays", failed=1)]
    metrics = SparkMetrics("flights", source, tasks=lambda: tasks, agent=lambda: {"x": 1})
    metrics.start()
    wait_until(lambda: bool(source.values))
    tasks[:] = [task("delays", failed=3, held=2), task("gains", failed=4)]
    metrics.stop()
    names = ("delays.record-failures", "delays.records-held", "gains.records-failed", "x")
    assert [source.values[f"arrester.flights.{name}"] for name in names] == [6, 2, 4, 1]


def test_an_error_ends_only_the_metrics(caplog: pytest.LogCaptureFixture) -> None:
    source = Source(RuntimeError("the SparkContext has ended"))
    metrics = SparkMetrics("flights", source, tasks=list, agent=dict)
    metrics.start()
    metrics.stop()
    assert source.calls == 1
    assert "its metrics are no longer set in Spark: RuntimeError: the SparkContext" in caplog.text


def test_metrics_in_spark_are_off_unless_a_setting_asks_for_them() -> None:
    def read(**environment: str) -> bool:
        return AgentConfig.read("flights", {}, environment=environment).spark_metrics

    assert not read()
    assert read(ARRESTER_SPARK_METRICS="True")
    with pytest.raises(InvalidConfiguration, match=r"ARRESTER_SPARK_METRICS.*true or false"):
        read(ARRESTER_SPARK_METRICS="yes")

"""Numbers in Spark's metrics system."""

from __future__ import annotations

from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.metric_source import MetricSource
from tests.agents.spark_gauges import gauges

pytestmark = pytest.mark.spark


@pytest.mark.smoke
def test_numbers_are_gauges_that_a_later_agent_of_the_driver_continues(
    spark: SparkSession,
) -> None:
    prefix = f"arrester.{uuid4().hex}"
    first, second = MetricSource(spark), MetricSource(spark)
    first.set({f"{prefix}.delays.record-failures": 3})
    first.set({f"{prefix}.delays.record-failures": 5, f"{prefix}.events-spooled": 2**40})
    second.set({f"{prefix}.delays.record-failures": 1, f"{prefix}.gains.record-failures": 7})
    assert gauges(spark, prefix) == {
        "delays.record-failures": 1,
        "events-spooled": 2**40,
        "gains.record-failures": 7,
    }

"""The inspector of Java exceptions."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.exceptions.java_inspector import java_inspector

pytestmark = pytest.mark.spark


def test_the_sessions_of_micro_batches_share_the_inspector(spark: SparkSession) -> None:
    assert java_inspector(spark) is java_inspector(spark.newSession())

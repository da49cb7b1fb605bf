"""Temporary changes of a session's configuration."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from pyspark.sql import SparkSession

from arrester.agents.spark.session_conf import SMALL, batch_rows, small_batches

pytestmark = pytest.mark.spark


def test_two_concurrent_bisections_restore_the_configuration_of_a_session(
    spark: SparkSession,
) -> None:
    session = spark.newSession()
    default = batch_rows(session)
    one, other = ExitStack(), ExitStack()
    one.enter_context(small_batches(session))
    # Another name for the same session, as each run has one.
    other.enter_context(small_batches(SparkSession(spark.sparkContext, session._jsparkSession)))
    assert batch_rows(spark) == default
    one.close()
    assert batch_rows(session) == SMALL
    other.close()
    assert batch_rows(session) == default

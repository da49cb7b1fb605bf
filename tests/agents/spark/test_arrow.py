"""What is changed of a session's configuration while records are searched."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from pyspark.sql import SparkSession

from arrester.agents.spark.arrow import SMALL, batch_rows, small_batches

pytestmark = pytest.mark.spark


def test_two_searches_at_once_leave_a_session_as_it_was(spark: SparkSession) -> None:
    session = spark.newSession()
    usual = batch_rows(session)
    one, other = ExitStack(), ExitStack()
    one.enter_context(small_batches(session))
    # Another name for the same session, as each run has one.
    other.enter_context(small_batches(SparkSession(spark.sparkContext, session._jsparkSession)))
    assert batch_rows(spark) == usual
    one.close()
    assert batch_rows(session) == SMALL
    other.close()
    assert batch_rows(session) == usual

"""Local checkpoints release their blocks, also if they fail."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from arrester.agents.spark.frames.local_checkpoint import checkpointed, release
from tests.agents.pipeline_bench import blocks

pytestmark = pytest.mark.spark


def test_a_failed_local_checkpoint_releases_its_blocks(spark: SparkSession) -> None:
    """Its first partition is complete by then, and would stay until Spark's cleaner runs."""
    context: Any = spark.sparkContext
    call_site = "callSite.short"
    context.setLocalProperty(call_site, "the author's")
    cached = spark.range(0, 2, 1, 1).cache()
    bad = F.when(F.col("id") == 1, F.raise_error(F.lit("bad"))).otherwise(F.col("id"))
    before = blocks(spark)

    try:
        with pytest.raises(Exception, match="bad"):
            checkpointed(spark.range(0, 2, 1, 2).select(bad.alias("n")))
        assert blocks(spark) <= before
        # A cache of the author's code is filled by the same job, and stays.
        with pytest.raises(Exception, match="bad"):
            checkpointed(cached.select(bad.alias("n")))
        assert len(blocks(spark) - before) == 1
        assert cached.count() == 2
        stored = checkpointed(cached)
        assert len(blocks(spark) - before) == 2
        assert context.getLocalProperty(call_site) == "the author's"
        release([stored])
    finally:
        cached.unpersist()
        context.setLocalProperty(call_site, None)
    assert blocks(spark) <= before

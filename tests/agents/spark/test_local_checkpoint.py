"""Local checkpoints leave nothing behind, also where they are not finished."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from arrester.agents.spark.local_checkpoint import checkpointed, release
from tests.agents.pipeline_bench import blocks

pytestmark = pytest.mark.spark


def test_of_a_local_checkpoint_that_fails_nothing_is_kept(spark: SparkSession) -> None:
    """Its first partition is whole by then, and would stay until Spark's cleaner comes."""
    context: Any = spark.sparkContext
    mine = "callSite.short"
    context.setLocalProperty(mine, "theirs")
    cached = spark.range(0, 2, 1, 1).cache()
    bad = F.when(F.col("id") == 1, F.raise_error(F.lit("bad"))).otherwise(F.col("id"))
    before = blocks(spark)

    try:
        with pytest.raises(PySparkException, match="bad"):
            checkpointed(spark.range(0, 2, 1, 2).select(bad.alias("n")))
        assert blocks(spark) <= before
        # What the author's code has cached is made in the same job, and stays.
        with pytest.raises(PySparkException, match="bad"):
            checkpointed(cached.select(bad.alias("n")))
        assert len(blocks(spark) - before) == 1
        assert cached.count() == 2
        kept = checkpointed(cached)
        assert len(blocks(spark) - before) == 2
        assert context.getLocalProperty(mine) == "theirs"
        release([kept])
    finally:
        cached.unpersist()
        context.setLocalProperty(mine, None)
    assert blocks(spark) <= before

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.agents.pipeline_bench import Bench


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Return the folders, source and sink of one case; agents made in it work alone."""
    monkeypatch.setenv("ARRESTER_SPOOL", str(tmp_path / "spool"))
    monkeypatch.delenv("REDIS_URL", raising=False)
    made = Bench(spark, tmp_path)
    yield made
    made.close()

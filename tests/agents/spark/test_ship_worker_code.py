"""Executors are separate processes with nothing installed: the agent ships its code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from arrester.agents.handlers import LogAndContinue, LogAndPause
from arrester.agents.spark import ship_worker_code
from arrester.domain.events import RecordFailed
from tests.agents.pipeline_bench import Bench, Row, sink_to
from tests.patience import PATIENCE_SECONDS
from tests.services import REPOSITORY

pytestmark = pytest.mark.spark

DRIVER = """
import json, os, sys
from pathlib import Path
from uuid import uuid4

root, folder = sys.argv[1], Path(sys.argv[2])
# The driver imports the agent from a path that executors do not have.
sys.path.insert(0, root)
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = (
    SparkSession.builder.master("local-cluster[1,1,1024]")
    .config("spark.ui.enabled", "false")
    .config("spark.executor.memory", "1g")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")

from arrester.agents.config import AgentConfig
from arrester.agents.handlers import LogAndContinue, LogAndPause
from arrester.agents.definition.builder import define
from arrester.agents.run.thread import PipelineThread
from tests.agents.pipeline_bench import MemoryOutbox, sink_to

def check(row):
    import importlib.util
    found = [name for name in ("agents", "domain", "msgspec") if name in sys.modules]
    found += ["agents"] if importlib.util.find_spec("agents") else []
    if row["value"] == "9,9":
        raise ValueError(f"found {found}, in {os.getpid() != driver}")
    return row

driver = os.getpid()
source = (
    spark.readStream.schema("task STRING, position BIGINT, value STRING")
    .option("maxFilesPerTrigger", 1).json(str(folder / "in"))
)
pipeline = (
    define("lines", source, task="task", position="position")
    .deserialize("pair", F.from_csv("value", "x INT, y INT"), on_error=LogAndContinue())
    .process("check", check, on_error=LogAndPause())
    .write(sink_to(folder / "out"))
)
outbox, ends = MemoryOutbox(), []
thread = PipelineThread(
    pipeline, application="tests", instance=uuid4(), outbox=outbox, on_end=ends.append,
    config=AgentConfig.read(
        "tests", {"errors.dlq.enable": True, "errors.dlq.path": str(folder / "dlq")},
        environment={"ARRESTER_SPOOL": str(folder / "spool")},
    ),
)
thread.start(str(folder / "checkpoint"), trigger={"availableNow": True})
thread._ended.wait()
paused = thread.paused_tasks()
report = {
    "ends": [end.reason for end in ends],
    "paused": [[state.id.key, state.position, state.held] for state in paused],
    "message": [state.failure.message for state in paused],
    "hosts": spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size(),
}
(folder / "report.json").write_text(json.dumps(report))
spark.stop()
"""


# `make test-cluster` runs pipelines on a standalone cluster.
@pytest.mark.long
def test_executors_need_nothing_installed(tmp_path: Path) -> None:
    from tests.agents.pipeline_bench import read_sink, write_batch

    rows = [("a", 0, "1,2"), ("a", 1, "NA,3"), ("a", 2, "9,9"), ("a", 3, "4,5"), ("b", 0, "6,7")]
    named = [dict(zip(("task", "position", "value"), row, strict=True)) for row in rows]
    write_batch(tmp_path / "in", 1, named)
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PYSPARK_PYTHON"] = sys.executable

    done = subprocess.run(
        [sys.executable, str(script), str(REPOSITORY), str(tmp_path)],
        # Executors inherit the working directory of the driver.
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
    )

    assert done.returncode == 0, done.stderr[-5_000:]
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["paused"] == [["a", 2, 2]]
    assert report["message"] == ["found [], in True"]
    assert report["ends"] == ["the query has come to its end"]
    assert report["hosts"] == 2  # an executor and the driver
    written = sorted((row["task"], row["position"]) for _, row in read_sink(tmp_path / "out"))
    assert written == [("a", 0), ("b", 0)]


def test_python_workers_import_the_archive_and_nothing_else_of_ours(
    bench: Bench, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Functions of other tests import modules of ours: this one has Python workers of its own."""
    monkeypatch.setitem(spark.sparkContext.environment, "ARRESTER_TEST", "archive")

    def check(row: Row) -> Row:
        import sys

        if row["value"] == "9,9":
            found = {name.partition(".")[0] for name in sys.modules}
            raise ValueError(sorted(found & {"_arrester_worker", "arrester", "msgspec"}))
        return row

    rows = [("a", 0, "1,2"), ("a", 1, "NA,3"), ("a", 2, "9,9"), ("a", 3, "4,5"), ("b", 0, "6,7")]
    bench.add(*rows)
    pipeline = (
        bench.define()
        .deserialize("pair", F.from_csv("value", "x INT, y INT"), on_error=LogAndContinue())
        .process("check", check, on_error=LogAndPause())
        .write(sink_to(bench.folder / "out"))
    )
    bench.start(pipeline)
    bench.wait_for_input()
    bench.stop()
    assert bench.written() == [("a", 0), ("b", 0)]
    messages = [each.failure.message for each in bench.outbox.of(RecordFailed)]
    assert "['_arrester_worker']" in messages


def test_all_of_the_archive_can_be_imported_alone(spark: SparkSession) -> None:
    archive = ship_worker_code._write_archive(spark.sparkContext)
    names = [Path(name).stem for name in ship_worker_code._sources()]
    code = "import sys; sys.path.insert(0, sys.argv[1]); from _arrester_worker import *"
    # Isolated: without the working directory and PYTHONPATH.
    subprocess.run(
        [sys.executable, "-I", "-c", code.replace("*", ", ".join(names)), str(archive)],
        check=True,
        timeout=PATIENCE_SECONDS,
    )


def test_the_archive_is_the_same_at_any_time(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another pipeline may write it again before the first Spark task fetches it."""
    context = spark.sparkContext
    first = ship_worker_code._write_archive(context).read_bytes()
    monkeypatch.setattr("time.time", lambda: 2_000_000_000.0)
    assert ship_worker_code._write_archive(context).read_bytes() == first

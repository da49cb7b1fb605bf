"""SIGTERM to the JVM, which is the parent of Python under `spark-submit`, ends the driver in order.

Kubernetes sends it to the first process of the driver's container, which is the JVM of
`spark-submit` or passes it on to that.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from arrester.agents.spark.jvm import shutdown_hook
from tests.agents.redis_server import FoldingSide, Server
from tests.agents.test_agent import assert_ended_in_order
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.services import REPOSITORY

pytestmark = pytest.mark.spark

SPARK_SUBMIT = Path(sys.executable).with_name("spark-submit")
#: How long the sink is at work.
SECONDS = 4
DRIVER = f"""
    import sys, time
    from pathlib import Path

    from pyspark.sql import SparkSession

    from arrester import Agent

    folder = Path(sys.argv[1])
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = spark.getOrCreate()

    def sink(rows, number):
        (folder / "busy").touch()
        time.sleep({SECONDS})
        rows.write.mode("overwrite").json(str(folder / "out" / str(number)))

    source = spark.readStream.schema("number LONG").json(str(folder / "in"))
    with Agent(spark, application="flights") as agent:
        pipeline = agent.pipeline("numbers", source, position="number").write(sink)
        pipeline.start(str(folder / "checkpoint"))
        agent.await_termination()
    (folder / "after").touch()
"""


@contextmanager
def submitted(folder: Path, server: Server) -> Iterator[subprocess.Popen[str]]:
    """Run the driver with spark-submit until its sink is at work."""
    (folder / "in").mkdir()
    (folder / "in" / "first.json").write_text('{"number": 7}')
    script = folder / "driver.py"
    script.write_text(textwrap.dedent(DRIVER))
    variables = {
        "ARRESTER_SPOOL": str(folder / "spool"),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(REPOSITORY),
        "REDIS_URL": server.url,
    }
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [SPARK_SUBMIT, script, folder],
            env=os.environ | variables,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        ) as process,
    ):
        try:
            wait_until(lambda: (folder / "busy").exists() or process.poll() is not None)
            assert process.poll() is None, (folder / "log").read_text()
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def python_of(process: subprocess.Popen[str]) -> int:
    """Return the id of the driver's Python process."""
    found = ["pgrep", "-P", str(process.pid), "-f", "driver.py"]
    return int(subprocess.run(found, capture_output=True, text=True, check=True).stdout)


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "receiver", "signal_name"),
    [
        (signal.SIGTERM, "jvm", "SIGTERM"),
        (signal.SIGTERM, "python", "SIGTERM"),
        (signal.SIGTERM, "both", "SIGTERM"),
        (signal.SIGINT, "both", "SIGINT"),
    ],
    ids=lambda each: str(each),
)
def test_a_signal_to_the_jvm_of_spark_submit_ends_the_driver_in_order(
    number: signal.Signals,
    receiver: str,
    signal_name: str,
    tmp_path: Path,
    redis_server: Server,
    folding: FoldingSide,
) -> None:
    with submitted(tmp_path, redis_server) as process:
        begin = time.monotonic()
        if receiver == "jvm":
            os.kill(process.pid, number)
        elif receiver == "python":
            os.kill(python_of(process), number)
        else:
            os.killpg(process.pid, number)
        status = process.wait(PATIENCE_SECONDS)
        seconds = time.monotonic() - begin
    log = (tmp_path / "log").read_text()
    assert status == 128 + number, log
    # The grace period of Kubernetes, unless it is set.
    assert seconds < 30
    assert_ended_in_order(folding, f"the driver received {signal_name}")
    # The running sink finished, and nothing after the block was run.
    written = [path.read_text() for path in (tmp_path / "out").glob("*/part-*")]
    assert written == ['{"number":7}\n']
    # Spark committed its micro-batch: the next run does not write it again.
    assert (tmp_path / "checkpoint" / "commits" / "0").exists()
    assert not (tmp_path / "after").exists()
    assert "Traceback" not in log and " ERROR " not in log


def test_the_jvm_runs_the_hook_as_long_as_the_block_lasts(spark: SparkSession) -> None:
    runs: list[str] = []
    manager, hook = shutdown_hook._added(spark, lambda: runs.append("run"), 5)
    assert manager.hasShutdownHook(hook)
    hook.run()
    assert runs == ["run"]
    assert manager.removeShutdownHook(hook)


def test_a_jvm_without_hooks_changes_nothing(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise RuntimeError("not allowed on this platform")

    monkeypatch.setattr(shutdown_hook, "_added", refused)
    with shutdown_hook.shutdown_hook(spark, lambda: None, timeout_seconds=5):
        pass
    with (
        pytest.raises(KeyError),
        shutdown_hook.shutdown_hook(spark, lambda: None, timeout_seconds=5),
    ):
        raise KeyError

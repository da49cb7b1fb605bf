"""A server and drivers of one version, and what an upgrade finds: data folder, input and output."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from arrester.controlplane import embedded
from tests.controlplane.management.test_up import OVERRIDES, read_until
from tests.e2e.stack import Stack
from tests.patience import PATIENCE_SECONDS
from tests.ports import free_port

APPLICATION, PIPELINE = "flights", "lines"
#: It runs on each version: `skip` is a dead letter, `bad` stops its task.
DRIVER = f"""
import sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from arrester import Agent, LogAndContinue, LogAndPause

folder = sys.argv[1]
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2").getOrCreate()
)
schema = "origin STRING, position BIGINT, value STRING"
source = spark.readStream.schema(schema).json(folder + "/in")
skipped = F.when(F.col("value") == "skip", F.raise_error(F.lit("to be skipped")))

def check(row):
    if row["value"] == "bad":
        raise ValueError("bad")
    return row

errors = {{"errors.dlq.enable": True, "errors.dlq.path": folder + "/dead-letters"}}
with Agent(spark, application="{APPLICATION}", errors=errors) as agent:
    pipeline = (
        agent.pipeline("{PIPELINE}", source, task="origin", position="position")
        .deserialize("checked", skipped.otherwise(F.col("value")), on_error=LogAndContinue())
        .process("check", check, on_error=LogAndPause())
        .write_files(folder + "/sink", number_column="number")
    )
    pipeline.start(folder + "/checkpoint")
    agent.await_termination()
"""


@dataclass(frozen=True, slots=True)
class Version:
    """An installed version: the folder with its commands."""

    bin: Path

    @contextmanager
    def server(self, home: Path) -> Iterator[Stack]:
        """Run `arrester up`; return its REST API, without a token."""
        port = free_port()
        process = subprocess.Popen(
            [self.bin / "arrester", "up", "--no-demo"],
            cwd=home.parent,
            env=variables() | {"ARRESTER_HOME": str(home), "ARRESTER_PORT": str(port)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            read_until(process, "initial passwords")
            yield Stack(home.parent, port=port)
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0

    def manage(self, home: Path, *words: str) -> str:
        """Run a command in the data folder; return what it prints; fails when it does."""
        done = subprocess.run(
            [self.bin / "arrester", *words],
            cwd=home.parent,
            env=variables() | {"ARRESTER_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    @contextmanager
    def driver(self, home: Path) -> Iterator[None]:
        """Run the pipeline; kill it at the end, as a machine that is gone."""
        folder = home.parent
        (folder / "pipeline.py").write_text(DRIVER)
        connection = {
            "REDIS_URL": embedded.known_urls(home).redis,
            "ARRESTER_SPOOL": str(folder / "spool"),
            "PYSPARK_PYTHON": str(self.bin / "python"),
        }
        with (folder / "driver.log").open("ab") as log:
            process = subprocess.Popen(
                [self.bin / "python", folder / "pipeline.py", folder],
                cwd=folder,
                env=variables() | connection,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield
            assert process.poll() is None, (folder / "driver.log").read_text()
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE_SECONDS)


def variables() -> dict[str, str]:
    """Return the environment without what points to the repository or its servers."""
    ours = {"PYTHONPATH", "DJANGO_SETTINGS_MODULE", "ARRESTER_HOME", *OVERRIDES}
    return {name: value for name, value in os.environ.items() if name not in ours}

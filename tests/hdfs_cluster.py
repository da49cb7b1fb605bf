"""A name node and a data node of HDFS in one process, from `scripts/jars`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arrester.controlplane.embedded import process
from tests import scratch
from tests.patience import wait_until
from tests.services import REPOSITORY

_STOP_SECONDS = 30.0
_MAIN = "org.apache.hadoop.test.MiniDFSClusterManager"
#: As for Spark in the tests: most of it runs once.
_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")


@contextmanager
def running() -> Iterator[str]:
    """Run a cluster until the block ends, and return its URL."""
    archives = subprocess.run(
        ["scripts/jars", "hdfs"], cwd=REPOSITORY, stdout=subprocess.PIPE, check=True
    )
    # Its client is of the same Hadoop; another Spark has another one.
    [client] = (REPOSITORY / ".venv").glob("lib/python*/site-packages/pyspark/jars")
    home = os.environ.get("JAVA_HOME")
    with tempfile.TemporaryDirectory(prefix="arrester-hdfs-", dir=scratch.FOLDER) as folder:
        details, log = Path(folder) / "details.json", Path(folder) / "hdfs.log"
        child = process.start(
            [
                *(f"{home}/bin/java" if home else "java", *_JVM),
                "-cp",
                f"{archives.stdout.decode().strip()}/*:{client}/*",
                *(_MAIN, "-format", "-datanodes", "1", "-nnport", "0", "-httpport", "0"),
                *("-writeDetails", str(details)),
            ],
            log=log,
            folder=Path(folder),
        )

        def is_ready() -> bool:
            assert child.poll() is None, f"HDFS ended: {log.read_text()[-2000:]}"
            return details.exists() and details.read_text().endswith("}")

        try:
            wait_until(is_ready, what="HDFS")
            yield f"hdfs://127.0.0.1:{json.loads(details.read_text())['namenode_port']}"
        finally:
            process.stop(child, signal.SIGTERM, seconds=_STOP_SECONDS)

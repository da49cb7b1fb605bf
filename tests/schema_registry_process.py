"""A real schema registry with Confluent's REST interface, and spark-avro, from `scripts/jars`."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import requests

from arrester.controlplane.embedded import process
from tests import scratch
from tests.patience import wait_until
from tests.ports import free_port
from tests.services import REPOSITORY

_STOP_SECONDS = 30.0
#: As for Spark in the tests: most of it runs once.
_JVM = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"),
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """A running registry, with its schemas in memory."""

    url: str
    child: subprocess.Popen[bytes]

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Let the registry answer nothing until the block ends."""
        self.child.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.child.send_signal(signal.SIGCONT)


@contextmanager
def running() -> Iterator[Registry]:
    """Run a registry until the block ends; its log is in a temporary folder."""
    archives = subprocess.run(
        ["scripts/jars", "schema-registry"], cwd=REPOSITORY, stdout=subprocess.PIPE, check=True
    )
    [program] = Path(archives.stdout.decode().strip()).glob("*-runner.jar")
    home, port = os.environ.get("JAVA_HOME"), free_port()
    java = f"{home}/bin/java" if home else "java"
    with tempfile.TemporaryDirectory(prefix="arrester-registry-", dir=scratch.FOLDER) as folder:
        log = Path(folder) / "registry.log"
        child = process.start(
            [java, *_JVM, *_address(port), "-jar", program],
            log=log,
        )
        registry = Registry(url=f"http://127.0.0.1:{port}/apis/ccompat/v7", child=child)
        try:
            wait_until(lambda: _answers(registry, log), what="the schema registry")
            yield registry
        finally:
            process.stop(child, signal.SIGTERM, seconds=_STOP_SECONDS)


def spark_avro() -> list[Path]:
    """Return the archive of spark-avro for this Spark; none if it is not downloaded."""
    minor = ".".join(version("pyspark").split(".")[:2])
    return sorted((REPOSITORY / f"build/jars/avro-{minor}").glob("*.jar"))


def _address(port: int) -> list[str]:
    return ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"]


def _answers(registry: Registry, log: Path) -> bool:
    assert registry.child.poll() is None, f"the registry ended: {log.read_text()[-2000:]}"
    try:
        return requests.get(f"{registry.url}/subjects", timeout=1).ok
    except requests.RequestException:
        return False

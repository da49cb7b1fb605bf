"""On a standalone cluster: executors, a worker and the driver are killed; every record is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import EXECUTOR_PYTHON, Cluster, configuration, packed_environment
from tests.e2e.stack import Stack, eventually
from tests.e2e.test_faults import check_counts, check_sink, no_held, settled

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Run a cluster to which the drivers of the test connect."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    cluster = Cluster(folder)
    try:
        cluster.start()
        monkeypatch.setenv("SPARK_MASTER", cluster.master)
        archive = packed_environment(folder)
        monkeypatch.setenv("SPARK_CONF_DIR", str(configuration(folder, archive)))
        monkeypatch.setenv("PYSPARK_PYTHON", EXECUTOR_PYTHON)
        yield cluster
    finally:
        cluster.stop()


def test_killed_executors_workers_and_drivers_lose_no_record(
    cluster: Cluster, stack: Stack, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_DRIVER_HOST", "127.0.0.1")
    stack.start_driver(hostname="driver-1")
    eventually(lambda: stack.is_paused("JFK"), what="JFK is PAUSED")
    cluster.kill_executor()
    requested = {"kind": "SKIP_RECORD", "task": stack.task("JFK")["id"], "reason": "a test"}
    assert stack.command(**requested)["status"] == "APPLIED"
    cluster.kill_worker()
    eventually(lambda: stack.is_paused("EWR"), what="EWR is PAUSED, on the other worker")
    stack.kill("driver")

    cluster.start_worker(3)
    (stack.folder / "repaired").touch()
    monkeypatch.setenv("SPARK_DRIVER_HOST", "127.0.0.2")
    stack.start_driver(hostname="driver-2")
    cluster.kill_executor()
    eventually(lambda: settled(stack, rows) and no_held(stack), what="nothing is held")
    check_sink(stack, rows, without=1)
    check_counts(stack, rows)
    path = "/api/v1/applications/flights/instances"
    lists = [stack.get(f"{path}?ended={flag}")["results"] for flag in (0, 1)]
    hosts = {instance["host"] for instances in lists for instance in instances}
    assert hosts == {"driver-1", "driver-2"}
    stack.manage("rebuild", "--verify")

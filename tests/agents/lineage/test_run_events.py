"""Run events of OpenLineage of real runs, as a real HTTP server receives them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from arrester.agents.handlers import LogAndContinue, LogAndFail
from arrester.agents.lineage import emitter
from tests.agents.pipeline_bench import APPLICATION, Bench
from tests.controlplane.alerts.receivers import Receiver, http_receiver
from tests.patience import wait_until

pytestmark = pytest.mark.spark

PARENT = "0193476e-0000-7000-8000-00000000aaaa"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Run a server that agents send run events to."""
    own = {"OPENLINEAGE_URL": "", "OPENLINEAGE_NAMESPACE": "airport"}
    # The client adds variables of its own to the environment of its process.
    with http_receiver() as receiver, mock.patch.dict(os.environ, own):
        os.environ["OPENLINEAGE_URL"] = receiver.url
        emitter.close(APPLICATION)
        yield receiver
    emitter.close(APPLICATION)


def check(row: dict[str, Any]) -> dict[str, Any]:
    if row["value"] == "bad":
        raise ValueError(f"secret of {row['position']}")
    return row


def received(receiver: Receiver, last: str) -> list[dict[str, Any]]:
    """Return the events up to the one that ends the run."""

    def events() -> list[dict[str, Any]]:
        return [json.loads(each.content) for each in list(receiver.requests)]

    wait_until(lambda: any(each["eventType"] == last for each in events()))
    return events()


def failed(event: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return the assertions about the input."""
    (dataset,) = event["inputs"]
    assertions = dataset["inputFacets"]["dataQualityAssertions"]["assertions"]
    keys = ("success", "actual", "severity")
    return {each["name"]: tuple(each[key] for key in keys) for each in assertions}


def test_a_run_reports_its_datasets_and_its_failed_records(
    bench: Bench, receiver: Receiver
) -> None:
    for name, value in (
        ("parentJobNamespace", "dags"),
        ("parentJobName", "nightly.flights"),
        ("parentRunId", PARENT),
    ):
        bench.spark.conf.set(f"spark.openlineage.{name}", value)
    try:
        bench.add(("a", 0, "x"), ("a", 1, "bad"), ("b", 0, "bad"))
        builder = bench.define().process("check", check, on_error=LogAndContinue())
        bench.start(builder.write_files(str(bench.folder / "out")))
        bench.wait_for_input()
        bench.stop()
    finally:
        for name in ("parentJobNamespace", "parentJobName", "parentRunId"):
            bench.spark.conf.unset(f"spark.openlineage.{name}")

    started, running, completed = received(receiver, "COMPLETE")
    assert [each["eventType"] for each in (started, running, completed)] == [
        "START",
        "RUNNING",
        "COMPLETE",
    ]
    assert len({each["run"]["runId"] for each in (started, running, completed)}) == 1
    for event in (started, running, completed):
        job = event["job"]
        assert (job["namespace"], job["name"]) == ("airport", f"{APPLICATION}.lines")
        assert job["facets"]["jobType"]["processingType"] == "STREAMING"
        assert event["run"]["facets"]["parent"]["run"]["runId"] == PARENT
        assert [(each["namespace"], each["name"]) for each in event["inputs"]] == [
            ("file", str(bench.folder / "in"))
        ]
        assert [(each["namespace"], each["name"]) for each in event["outputs"]] == [
            ("file", str(bench.folder / "out"))
        ]
    assert failed(started) == {
        f"failed records at {stage}": (True, "0", "warn")
        for stage in ("source", "process:check", "produce")
    }
    for event in (running, completed):
        assert failed(event)["failed records at process:check"] == (False, "2", "warn")
    tests = completed["run"]["facets"]["test"]["tests"]
    assert [(each["name"], each["status"]) for each in tests] == [
        ("failed records at source", "pass"),
        ("failed records at process:check", "fail"),
        ("failed records at produce", "pass"),
    ]


def test_a_run_that_a_record_ends_is_reported_as_failed(bench: Bench, receiver: Receiver) -> None:
    bench.add(("a", 0, "x"), ("a", 1, "bad"))
    bench.start(bench.checking(check, LogAndFail()))
    event = received(receiver, "FAIL")[-1]
    assert failed(event)["failed records at process:check"] == (False, "1", "error")
    error = event["run"]["facets"]["errorMessage"]
    # The message of an exception may quote a record.
    assert error["message"] == "ValueError at process:check"
    assert "secret" not in json.dumps(event)
    assert event["outputs"] == []


def test_a_server_that_refuses_events_and_a_missing_package_affect_no_run(
    bench: Bench,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    receiver.status = 400
    bench.add(("a", 0, "x"), ("a", 1, "bad"))
    bench.start(bench.checking(check, LogAndContinue()))
    bench.wait_for_input()
    bench.stop()
    emitter.close(APPLICATION)
    assert "a START event of tests.lines is not sent" in caplog.text

    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    bench.add(("a", 2, "x"))
    bench.start(bench.checking(check, LogAndContinue()))
    bench.wait_for_input()
    bench.stop()
    emitter.close(APPLICATION)
    assert caplog.text.count("pip install 'arrester[lineage]'") == 1
    assert bench.positions("a") == [0, 2]

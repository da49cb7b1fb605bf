"""Ends that no failed record has reported: message, stack trace and error group."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.agent import Agent
from arrester.agents.definition.builder import define
from arrester.domain.errors import InvalidValue
from arrester.domain.events import Failure, RecordFailed, ThreadDied
from tests.agents.pipeline_bench import Bench, server_state
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.spark


def missing(rows: DataFrame, number: int) -> None:
    import no_such_driver  # type: ignore[import-not-found]  # noqa: F401


def refusing(rows: DataFrame, number: int) -> None:
    rows.select(F.raise_error(F.lit("no room"))).collect()


def ended(bench: Bench) -> tuple[Failure, str]:
    """Return the failure of the only end, and its stack trace."""
    wait_until(lambda: bool(bench.outbox.of(ThreadDied)))
    [event] = [each for each in bench.outbox.events if isinstance(each.data, ThreadDied)]
    assert isinstance(event.data, ThreadDied) and event.data.recordless
    assert event.data.failure is not None and event.body is not None
    return event.data.failure, event.body.stack or ""


@pytest.mark.parametrize(
    ("sink", "exception_class", "message", "frame"),
    [
        (missing, "ModuleNotFoundError", "No module named 'no_such_driver'", "in missing"),
        (refusing, "org.apache.spark.SparkRuntimeException", "no room", "in refusing"),
    ],
)
def test_the_end_by_a_sink_has_message_trace_and_group(
    bench: Bench, sink: Any, exception_class: str, message: str, frame: str
) -> None:
    bench.add(("a", 0, "x"))
    bench.start(bench.define().write(sink))

    failure, stack = ended(bench)
    assert (failure.stage, failure.exception_class) == ("produce", exception_class)
    assert message in failure.message
    assert failure.frame is not None and failure.frame.endswith(frame)
    assert message in stack
    assert bench.outbox.of(RecordFailed) == []
    [group] = server_state(bench.outbox.events).groups.values()
    assert (group.fingerprint, group.ended_runs, group.count) == (failure.fingerprint, 1, 0)


def test_the_end_by_a_source_has_the_message_of_its_cause_and_its_trace(bench: Bench) -> None:
    bench.add(("a", 0, "x"))
    too_early = F.assert_true(F.col("position") > 0, F.lit("too early"))
    source = bench.source().where(too_early.isNull())
    bench.start(define("lines", source, position="position").write(refusing))

    failure, stack = ended(bench)
    assert failure.stage == "source"
    assert failure.exception_class == "org.apache.spark.SparkRuntimeException"
    assert "too early" in failure.message and "too early" in stack


def test_an_exception_of_the_block_is_reported_unless_a_run_has(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARRESTER_SPOOL", str(bench.folder / "spool"))
    agent = Agent(bench.spark, application="tests")
    with pytest.raises(InvalidValue), agent:
        agent.pipeline("lines", bench.source(), position="nowhere")
    failure = agent._runtime.instance.state.failure
    assert failure is not None and failure.stage == "driver"
    assert "nowhere" in failure.message

    bench.add(("a", 0, "x"))
    agent = Agent(bench.spark, application="tests")
    with pytest.raises(ModuleNotFoundError), agent:
        pipeline = agent.pipeline("lines", bench.source(), position="position").write(missing)
        pipeline.start(bench.checkpoint)
        agent.await_termination(PATIENCE_SECONDS)
    failure = agent._runtime.instance.state.failure
    assert failure is not None and failure.stage == "produce"

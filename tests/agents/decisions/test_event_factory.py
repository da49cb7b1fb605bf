"""Events about failures and ends are bounded and do not quote a record."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest
from pyspark.sql import Row

from arrester.agents.decisions.event_factory import EventFactory
from arrester.agents.decisions.judge import Decision
from arrester.agents.failures.aggregate import FailureSummary
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.failures.payload import Redaction
from arrester.agents.run.termination import end_of
from arrester.agents.spark.errors import Problem, StepFailed
from arrester.domain.events import Event, RecordFailed, Run, TaskDied, TaskPaused
from arrester.domain.identity.names import KEY_MAX_BYTES
from arrester.domain.wire import codec, received_batch
from tests.agents.decisions.test_rules import pipeline_of
from tests.agents.sample_events import NOW

PROBLEM = Problem(exception_class="ValueError", message="no card 4111-1111 for ann@x.org")


def failed_record(position: int, *, task: str = "JFK", key: str | None = None) -> FailedRecord:
    return FailedRecord(
        task=task,
        position=position,
        entry=0,
        number=1,
        stage="process:check",
        problem=PROBLEM,
        row=Row(value="x"),
        key=key,
        value=None,
    )


def event_factory() -> EventFactory:
    run = Run(pipeline="flights", checkpoint="c1", epoch=1)
    return EventFactory(pipeline=pipeline_of(), instance=uuid4(), run=run, redaction=Redaction())


def decided(decision: Decision) -> list[Event]:
    return event_factory().decision_events(decision, NOW, lambda key: None)


def test_a_key_is_bounded_so_that_the_server_can_read_its_batch() -> None:
    many = [failed_record(n, key=f"{n}" + "k" * 2**20) for n in range(70)]
    events = decided(Decision(examples=many))
    assert len(received_batch.decode_batch(codec.encode_batch(events))) == 70
    keys = [event.data.key for event in events if isinstance(event.data, RecordFailed)]
    assert all(key is not None and len(key.encode()) <= KEY_MAX_BYTES for key in keys)
    assert len(set(keys)) == 70


def test_all_stopped_tasks_are_reported_and_some_records_in_full() -> None:
    in_full = [failed_record(0, task=f"t{n}") for n in range(3)]
    stopped_tasks = [
        FailureSummary(
            id=n, task=f"t{n}", entry=0, position=n, number=1, exception_class="ValueError"
        )
        for n in range(3, 10)
    ]
    events = decided(Decision(stopping=in_full, stopped_tasks=stopped_tasks, dead={"t9"}))

    failed = [event for event in events if isinstance(event.data, RecordFailed)]
    assert [event.body is not None for event in failed] == [True] * 3 + [False] * 7
    fingerprints = {event.data.failure.fingerprint for event in failed}  # type: ignore[union-attr]
    assert len(fingerprints) == 1
    paused = [event.data for event in events if isinstance(event.data, TaskPaused)]
    assert [(each.task, each.position) for each in paused[3:]] == [
        (f"t{n}", n) for n in range(3, 9)
    ]
    [died] = [event.data for event in events if isinstance(event.data, TaskDied)]
    assert (died.task, died.alone) == ("t9", True)
    # The message of a record is never that of another one.
    assert {each.failure.message for each in paused[3:] if each.failure} == {""}
    assert died.failure.message == ""
    messages = [each.data.failure.message for each in failed]  # type: ignore[union-attr]
    assert messages == [PROBLEM.message] * 3 + [""] * 7


def test_the_trace_of_a_cause_is_logged_once_per_run(caplog: pytest.LogCaptureFixture) -> None:
    records = [failed_record(n) for n in range(50)]
    stack = 'Traceback (most recent call last):\n  File "x.py", line 1, in check\nValueError: no'
    traced = [replace(each, problem=replace(PROBLEM, stack=stack)) for each in records]
    factory = replace(event_factory(), log=True)
    for each in (traced[:20], traced[20:]):
        factory.decision_events(Decision(examples=each), NOW, lambda task: None)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 50
    assert ["x.py" in line for line in lines] == [True] + 49 * [False]
    assert all(PROBLEM.message in line for line in lines)


def test_the_end_reason_of_a_failed_step_quotes_no_record() -> None:
    raised = ValueError(PROBLEM.message)
    failed = StepFailed("process:features", PROBLEM, raised, why="no single record does it")
    end = end_of(failed, stopped=None)

    assert end.exception is raised
    assert end.failure is not None
    assert (end.failure.exception_class, end.failure.message) == (
        "ValueError",
        "no single record does it",
    )
    assert end.reason == "process:features: ValueError (no single record does it)"
    # The log of the driver has its trace anyway.
    assert end.line == f"process:features: ValueError: {PROBLEM.message} (no single record does it)"

    model = Problem(exception_class="OSError", message="no model\nat all")
    failed = StepFailed("process:features", model, raised, why="without records", recordless=True)
    end = end_of(failed, stopped=None)
    assert end.failure is not None and end.failure.message == "no model\nat all"
    assert end.reason == "process:features: OSError: no model (without records)"

"""The record that a handler receives, and the text of exceptions about it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import Row

from arrester.agents.dead_letters.rejection import row_of
from arrester.agents.decisions.end_reasons import RecordFatal
from arrester.agents.decisions.policies import StagePolicy
from arrester.agents.decisions.rules import FailureRules, SelfHealing
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.error_policy.respond import Decided, DecisionReason
from arrester.agents.failure_log import log_failure
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.failures.payload import Redaction
from arrester.agents.handlers import ErrorContext, LogAndContinue, Record, RecordError
from arrester.agents.spark.errors import Problem
from arrester.domain.error_policy.classify import DEFAULT_TABLE, Kind
from arrester.domain.error_policy.exception_identity import Cause
from arrester.domain.error_policy.log_levels import LogMessage
from arrester.domain.error_policy.policy import Policy, Response, StageKind
from arrester.domain.events import RecordFailed
from tests.agents.pipeline_bench import Bench, levels_of
from tests.patience import wait_until

COORDINATES = {"topic": "flights", "partition": 2, "offset": 8}
NOTHING: Any = None


class Reading:
    """Records the contexts it receives."""

    def __init__(self) -> None:
        self.contexts: list[ErrorContext] = []

    def handle(self, context: ErrorContext, record: Record, exception: RecordError) -> Response:
        self.contexts.append(context)
        return Response.CONTINUE


def pipeline_of() -> Pipeline:
    return Pipeline(
        name="flights",
        source=NOTHING,
        task=NOTHING,
        position=NOTHING,
        key=None,
        value=None,
        key_name=None,
        key_names=(),
        on_error=None,
        steps=(),
        columns=(),
        sink=NOTHING,
    )


def rules(handler: Any) -> FailureRules:
    stage = StagePolicy(stage=StageKind.PROCESS, policy=Policy(handled=True), handler=handler)
    return FailureRules(
        application="tests",
        pipeline=pipeline_of(),
        stages={1: stage},
        clock=lambda: datetime(2026, 11, 20, tzinfo=UTC),
    )


def failed(row: dict[str, Any], *names: str) -> FailedRecord:
    problem = Problem(
        exception_class="ValueError", message="card 4711", cause=Cause(names=names or ("x",))
    )
    return FailedRecord(
        task="a",
        position=8,
        entry=0,
        number=1,
        stage="process:check",
        problem=problem,
        row=Row(**row),
        key=None,
        value=None,
    )


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ([Row(key="trace", value=b"\xff"), Row(key="empty", value=None)], 2),
        (None, 0),
        ({"trace": "a"}, 0),
        ("trace=a", 0),
        (["trace"], 0),
        ([Row(name="trace", text="a")], 0),
        ([Row(key="trace", value="text")], 0),
        ([None], 0),
    ],
)
def test_handlers_receive_no_headers_that_are_not_of_kafka(headers: object, shown: int) -> None:
    handler = Reading()
    rules(handler).respond_to_record(failed({**COORDINATES, "headers": headers}), now_ms=0)
    [context] = handler.contexts
    assert (context.topic, len(context.headers)) == ("flights", shown)


def test_a_self_healing_failure_does_not_quote_the_record() -> None:
    healing = next(
        name
        for name, ruling in DEFAULT_TABLE.classifications.items()
        if ruling.kind is Kind.SELF_HEALING
    )
    each = failed({"value": "4711"}, healing)
    for decide in (
        lambda: rules(Reading()).respond_to_record(each, now_ms=0),
        lambda: rules(Reading()).is_fatal(each),
    ):
        with pytest.raises(SelfHealing) as raised:
            decide()
        assert str(raised.value).startswith("ValueError (")
        assert "4711" not in str(raised.value)


class Answering:
    """Gives an answer of its own, or raises."""

    def __init__(self, answer: Any) -> None:
        self.answer_of_mine = answer

    def handle(self, context: ErrorContext, record: Record, exception: RecordError) -> Any:
        if isinstance(self.answer_of_mine, BaseException):
            raise self.answer_of_mine
        return self.answer_of_mine


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (None, "returned None, not CONTINUE, RETRY, PAUSE or FAIL"),
        ("CONTINUE", "returned 'CONTINUE', not CONTINUE, RETRY, PAUSE or FAIL"),
        (KeyError("limit"), "raised KeyError: 'limit'"),
        (SystemExit(), "raised SystemExit"),
    ],
)
def test_a_broken_handler_is_named_in_the_failure_and_in_the_log(
    answer: object, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken, each = rules(Answering(answer)), failed({"value": "x"})

    outcome = broken.respond_to_record(each, now_ms=0)

    assert isinstance(outcome, Decided) and outcome.reason is DecisionReason.HANDLER_BROKEN
    message = broken.with_handler_fault(each).problem.message
    assert message == f"card 4711 (FAIL, since its handler Answering {fault})"
    text = f"tests/flights: produce at task 'a', position 8: FAIL, since its handler {fault}"
    assert levels_of(text.replace("handler ", "handler Answering "), caplog) == ["ERROR"]


def test_the_log_of_a_broken_handler_has_no_masked_value(caplog: pytest.LogCaptureFixture) -> None:
    raising = rules(Answering(KeyError("4711-0815")))
    masked = replace(raising, redaction=Redaction(drop=("card",)))
    masked.respond_to_record(failed({"card": "4711-0815"}), now_ms=0)
    assert levels_of("raised KeyError", caplog) == ["ERROR"]
    assert "4711-0815" not in caplog.text and "Traceback" in caplog.text


@pytest.mark.spark
def test_the_end_of_a_run_names_the_broken_handler(bench: Bench) -> None:
    def check(row: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("five")

    bench.add(("a", 0, "x"))
    bench.start(bench.checking(check, Answering(None)))
    wait_until(lambda: bool(bench.ends))

    fault = "five (FAIL, since its handler Answering returned None, not CONTINUE"
    assert fault in bench.ends[0].reason
    [failed_record] = bench.outbox.of(RecordFailed)
    assert failed_record.failure.message.startswith(fault)


@pytest.mark.spark
def test_the_log_of_skipped_records_has_the_most_frequent_cause(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def check(row: dict[str, Any]) -> dict[str, Any]:
        if row["value"] == "rare":
            raise KeyError("rare")
        raise ValueError("frequent\nand more")

    bench.add(("a", 0, "rare"), ("a", 1, "x"), ("b", 0, "x"))
    bench.start(bench.checking(check, LogAndContinue()), errors_examples_limit=1)
    bench.wait_for_input()
    wait_until(lambda: len(bench.outbox.of(RecordFailed)) == 2)

    line = "3 failed records of 2 tasks skipped, most of them at process:check: "
    assert levels_of(f"{line}ValueError: frequent", caplog) == ["WARNING"]
    assert "and more" not in caplog.text


def test_a_row_may_have_columns_of_any_name() -> None:
    values = {"cls": 1, "self": "x", "a b": None, "count": [1]}
    assert row_of(values).asDict() == values
    assert row_of({}).asDict() == {}


@pytest.mark.parametrize(
    ("row", "redaction", "coordinates"),
    [
        ({"card": 4711}, Redaction(), ""),
        (COORDINATES, Redaction(), " (topic flights, partition 2, offset 8)"),
        (COORDINATES, Redaction(drop=["topic"]), " (partition 2, offset 8)"),
        (COORDINATES, Redaction(only=[]), ""),
        # A column of that name may have any value; the log line stays one line.
        (COORDINATES | {"topic": "card\n4711"}, Redaction(), " (partition 2, offset 8)"),
        ({"topic": {"card": 1}, "partition": None, "offset": "4711"}, Redaction(), ""),
    ],
)
def test_a_log_line_has_the_location_of_a_record_and_its_exception(
    row: dict[str, Any], redaction: Redaction, coordinates: str
) -> None:
    named = replace(rules(Reading()), redaction=redaction)
    place = f"process:check failed at task 'a', position 8{coordinates}: ValueError"
    assert named.log_line(failed(row)) == f"flights: {place}: card 4711"
    assert str(RecordFatal(failed(row), redaction=redaction)) == f"{place}: card 4711"


def test_a_log_line_has_the_exception_of_the_record_without_masked_values(
    caplog: pytest.LogCaptureFixture,
) -> None:
    each = failed({"value": "x", "card": "4711-0815"}, "builtins.ValueError")
    message = "no card 4711-0815\nand more"
    each = replace(each, problem=replace(each.problem, message=message))
    own = rules(Reading())
    own.redaction = Redaction(drop=("card",))
    log_failure(LogMessage.TASK_PAUSED, own.log_line(each))
    kind = each.problem.exception_class
    assert levels_of(f": {kind}: no card …[redacted]. The task is PAUSED", caplog) == ["WARNING"]
    assert "and more" not in caplog.text

    of_database = Problem(exception_class="PSQLException", message="ERROR: late", condition="57014")
    assert of_database.line == "PSQLException (57014): ERROR: late"
    of_spark = Problem(exception_class="SparkException", message="[A.B] no", condition="A.B")
    assert of_spark.line == "SparkException: [A.B] no"
    assert Problem(exception_class="KeyError", message="").line == "KeyError"

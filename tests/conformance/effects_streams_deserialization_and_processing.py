"""Skipped records, and records that end their task, on Spark."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from arrester.agents.decisions.end_reasons import RecordFatal
from arrester.agents.definition.builder import define
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import LogAndContinue, LogAndFail
from arrester.domain.events import RecordFailed, TaskDied
from arrester.domain.state.states import ThreadStatus
from tests.agents.kafka_records import KafkaRecord, add_records, kafka_source
from tests.agents.pipeline_bench import Bench, read_sink, server_state, sink_to
from tests.conformance.cases import Case
from tests.conformance.kafka_rows import Seen, kafka_pipeline
from tests.patience import wait_until

Row = dict[str, Any]


def reading(bench: Bench) -> Pipeline:
    """Return a pipeline that skips values that are not numbers."""
    return (
        bench.define()
        .deserialize("number", F.col("value").cast("int"), on_error=LogAndContinue())
        .write(sink_to(bench.folder / "out"))
    )


def failing() -> Any:
    def check(row: Row) -> Row:
        if row["value"] == b"ERR":
            raise ValueError("ERR")
        return row

    return check


def add(bench: Bench, record: str) -> None:
    value, offset = record.split("@")
    bench.add(("0_0", int(offset), {"good": "1"}.get(value, value)))


def check_advances(case: Case, bench: Bench) -> None:
    for record in case.given["records"]:
        add(bench, record)
    bench.start(reading(bench))
    bench.wait_for_input()
    bench.stop()
    assert bench.committed() + 1 == case.expect["committable_offset"]
    before = len(bench.outbox.of(RecordFailed))
    assert before == sum(record.startswith("bad") for record in case.given["records"])
    assert case.given.get("handler", "log-and-continue") == "log-and-continue"
    bench.start(reading(bench))
    add(bench, "good@9")
    bench.wait_for_input()
    assert len(bench.outbox.of(RecordFailed)) == before


def check_one_batch(case: Case, bench: Bench) -> None:
    for record in case.given["records"]:
        add(bench, record)
    bench.start(reading(bench))
    bench.wait_for_input()
    found = {"committable_offset": bench.committed() + 1}
    assert found == case.expect["after_one_process_call"]


def check_after_each(case: Case, bench: Bench) -> None:
    bench.start(reading(bench))
    for record, offset in zip(
        case.given["records"], case.expect["committable_after_each_call"], strict=True
    ):
        add(bench, record)
        bench.wait_for_input()
        assert bench.committed() + 1 == offset


def died(case: Case, bench: Bench, records: list[str]) -> str:
    """Return the reason of a run's end; each micro-batch has one record of Kafka."""
    assert case.given["handler_returns"] == "FAIL"
    for offset, record in enumerate(records):
        add_records(bench, KafkaRecord(topic="lines", value=record.encode(), offset=offset))
    builder = define("job", kafka_source(bench), task=F.lit("0_0"))
    builder = builder.process("check", failing(), on_error=LogAndFail())
    thread = bench.start(builder.write(sink_to(bench.folder / "out")))
    wait_until(lambda: bool(bench.ends))
    assert thread.state is ThreadStatus.DEAD
    return bench.ends[0].reason


def check_resume(case: Case, bench: Bench) -> None:
    """Each failed record is skipped and counted; the others are processed."""
    for offset, record in enumerate(case.given["records"]):
        add_records(bench, KafkaRecord(topic="lines", value=record.encode(), offset=offset))
    builder = define("job", kafka_source(bench), task=F.lit("0_0"))
    builder = builder.process("check", failing(), on_error=LogAndContinue())
    bench.start(builder.write(sink_to(bench.folder / "out")))
    bench.wait_for_input()
    bench.stop()
    [task] = server_state(bench.outbox.events).tasks.values()
    assert len(read_sink(bench.folder / "out")) == case.expect["processed"]
    assert task.counters.records_skipped == case.expect["dropped-records-total"]


def check_fail(case: Case, bench: Bench) -> None:
    reason = died(case, bench, case.given["records"])
    assert len(read_sink(bench.folder / "out")) == case.expect["processed"]
    assert bench.outbox.of(TaskDied)[0].position == case.given["records"].index("ERR")
    [task] = server_state(bench.outbox.events).tasks.values()
    assert task.counters.records_skipped == case.expect["dropped-records-total"]
    ours = {
        "task 0_0": "task '0_0'",
        "processor node": "process:check",
        "topic": "topic lines",
    }
    assert all(ours.get(name, name) in reason for name in case.expect["raises_naming"])


def check_wraps(case: Case, bench: Bench) -> None:
    reason = died(case, bench, ["ERR"])
    exception = bench.ends[0].exception
    assert "process:check" in reason
    assert isinstance(exception, RecordFatal)
    assert exception.failed.problem.exception_class == "ValueError"
    assert "ValueError: ERR" in str(exception.failed.problem.stack)


def check_context(case: Case, bench: Bench) -> None:
    seen = Seen()
    bench.add(("x", 7, "y"))
    bench.start(kafka_pipeline(bench, seen))
    bench.wait_for_input()
    [(context, record, _)] = seen.asked
    found = {
        "topic": context.topic,
        "partition": context.partition,
        "offset": context.offset,
        "headers": context.headers,
        "processorNodeId": context.stage,
        "taskId": context.task,
        "timestamp": context.timestamp,
        "sourceRawKey": record.raw_key,
        "sourceRawValue": record.raw_value,
    }
    assert set(case.expect["fields"]) == {
        name for name, value in found.items() if value is not None
    }
    assert found["headers"] == (("trace", b"7"),)
    assert (record.raw_key, record.raw_value) == (b"k1", b"y")
    assert (context.task, context.position, context.stage) == ("topic-a-5", 7, "process:check")


CHECKS = {
    ("given.records", "expect.processed", "given.handler_returns~RESUME"): check_resume,
    ("given.records", "expect.processed", "given.handler_returns~CONTINUE"): check_resume,
    ("expect.fields",): check_context,
    ("expect.committable_offset",): check_advances,
    ("expect.committable_after_each_call",): check_after_each,
    ("given.records", "expect.raises_naming"): check_fail,
    ("expect.raises~node name",): check_wraps,
    ("expect.after_one_process_call",): check_one_batch,
}

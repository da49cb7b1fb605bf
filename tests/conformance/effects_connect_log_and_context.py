"""The context of a handler on Spark, and the log line for a record of Kafka."""

from __future__ import annotations

import logging
from typing import Any

from tests.agents.kafka_records import KafkaRecord, add_records
from tests.agents.pipeline_bench import Bench
from tests.conformance.cases import Case, Known
from tests.conformance.kafka_effects import pipeline, raising
from tests.conformance.kafka_rows import Seen, kafka_pipeline

#: Where the case's fields are in our context.
FIELDS = {
    "task_id": "task",
    "index of the failing stage": "index",
    "attempt": "attempt",
    "time_of_error": "at",
    "stages[] in order": "stages",
    "worker config": "settings",
}


def check_context(case: Case, bench: Bench) -> None:
    seen = Seen()
    bench.add(("x", 100, "y"))
    bench.start(kafka_pipeline(bench, seen), errors_log_enable=True)
    bench.wait_for_input()
    [(context, record, exception)] = seen.asked
    found = {name for name, field in FIELDS.items() if getattr(context, field) not in (None, ())}
    found |= {"exception"} if exception.exception_class == "ValueError" else set()
    stage = context.stages[context.index]
    if (stage.name, stage.kind) == ("process:check", "Process"):
        found.add("stage{type,class,config}")
    assert "tests.conformance.kafka_rows.failing" in stage.config["function"]
    assert [each.name for each in context.stages] == [
        "source",
        "deserialize",
        "process:check",
        "produce",
    ]
    coordinates = (context.topic, context.partition, context.offset, record.raw_value)
    if coordinates == ("topic-a", 5, 100, b"y") and context.timestamp is not None:
        found.add("record{topic,timestamp,partition,offset,value{schema,object base64}}")
    assert found == set(case.expect["fields"])
    assert context.settings["errors.log.enable"] == "True"


class _Lines(logging.Handler):
    """Collects log lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def check_record_details(case: Case, bench: Bench) -> None:
    given = dict(case.given["record"])
    assert given.pop("timestamp_type") == "none"
    record = KafkaRecord(key=b"the-key", value=b"the-value", **given)
    add_records(bench, record)
    include = case.given["errors.log.include.messages"]
    log, kept = logging.getLogger("arrester.failures"), _Lines()
    log.addHandler(kept)
    try:
        step = raising("ConnectException", "x")
        settings: dict[str, Any] = {
            "errors_log_enable": True,
            "errors_log_include_messages": include,
        }
        bench.start(pipeline(bench, step), **settings)
        bench.wait_for_input()
        bench.stop()
    finally:
        log.removeHandler(kept)
    [line] = [line for line in kept.lines if "process:step failed" in line]
    assert all(text in line for text in case.expect["message_contains"])
    omitted = Known(
        {
            "key": "the-key",
            "value": "the-value",
            "timestamp when the record has none": str(record.timestamp_ms),
        }
    )
    assert [each for each in case.expect["message_omits"] if omitted[each] in line] == []


CHECKS = {
    ("expect.message_contains",): check_record_details,
    ("expect.fields",): check_context,
}

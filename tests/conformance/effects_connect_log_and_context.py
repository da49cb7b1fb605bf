"""What a handler is told of a failure, on Spark."""

from __future__ import annotations

from tests.agents.engine.bench import Bench
from tests.conformance.cases import Case
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
    told = {name for name, field in FIELDS.items() if getattr(context, field) not in (None, ())}
    told |= {"exception"} if exception.exception_class == "ValueError" else set()
    stage = context.stages[context.index]
    if (stage.name, stage.kind) == ("process:check", "Process"):
        told.add("stage{type,class,config}")
    assert "tests.conformance.kafka_rows.failing" in stage.config["function"]
    assert [each.name for each in context.stages] == [
        "source",
        "deserialize",
        "process:check",
        "produce",
    ]
    coordinates = (context.topic, context.partition, context.offset, record.raw_value)
    if coordinates == ("topic-a", 5, 100, b"y") and context.timestamp is not None:
        told.add("record{topic,timestamp,partition,offset,value{schema,object base64}}")
    assert told == set(case.expect["fields"])
    assert context.settings["errors.log.enable"] == "True"


CHECKS = {"context-fields-wip": check_context}

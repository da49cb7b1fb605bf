"""The context of a production handler, on Spark."""

from __future__ import annotations

from typing import Any

from tests.agents.pipeline_bench import Bench
from tests.conformance.cases import Case
from tests.conformance.kafka_rows import Seen, sending_pipeline


def check_context(case: Case, bench: Bench) -> None:
    """A record that cannot be sent: its bytes are in the handler's context."""
    seen = Seen()
    bench.add(("x", 100, "y"))
    bench.start(sending_pipeline(bench, seen))
    bench.wait_for_input()
    [(_, record, _)] = seen.asked
    found: dict[str, Any] = {
        "source_raw_key_in_context": record.raw_key,
        "source_raw_value_in_context": record.raw_value,
    }
    assert case.given["error"]
    present = {name: None if value is None else "present" for name, value in found.items()}
    assert case.expect == present


CHECKS = {("expect.source_raw_key_in_context",): check_context}

"""The location of a failed record in log lines and reasons: coordinates without values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.failures.payload import Redaction
from arrester.agents.spark.kafka_source import COORDINATES

#: Kafka's rule for topic names; a column of that name may have any value.
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def where(each: FailedRecord, redaction: Redaction) -> str:
    """Return a record's task and position, and for Kafka its topic, partition and offset.

    Redaction applies to the Kafka coordinates; task and position are identities and always stay.
    """
    place = f"task {each.task!r}, position {each.position}"
    found = _coordinates(each.row.asDict(), redaction) if is_of_kafka(each) else {}
    told = ", ".join(f"{name} {value}" for name, value in found.items())
    return f"{place} ({told})" if told else place


def is_of_kafka(each: FailedRecord) -> bool:
    """Whether the source row has Kafka's coordinates."""
    return each.row.asDict().keys() >= COORDINATES


def _coordinates(row: Mapping[str, Any], redaction: Redaction) -> dict[str, object]:
    kept = redaction.kept({name: row[name] for name in ("topic", "partition", "offset")})
    return {name: value for name, value in kept.items() if _is_coordinate(name, value)}


def _is_coordinate(name: str, value: object) -> bool:
    if name == "topic":
        return isinstance(value, str) and _TOPIC.fullmatch(value) is not None
    return isinstance(value, int)

"""The headers of a dead letter in a Kafka topic."""

from __future__ import annotations

from datetime import timezone
from typing import Any

DeadLetter = dict[str, Any]
Header = tuple[str, "bytes | None"]

#: Kafka Connect's names of the stages, which readers of its dead letters know.
_CONNECT_STAGES = {
    "source": "TASK_POLL",
    "deserialize": "VALUE_CONVERTER",
    "process": "TRANSFORMATION",
    "produce": "TASK_PUT",
}
_CONNECT, _STREAMS, _OURS = "__connect.errors.", "__streams.errors.", "__arrester."
#: The most bytes of our headers in a dead letter that is too large.
_HEADER_BYTES = 1_024
#: The precision of the time of the decision.
_PRECISION = "microseconds"
_CUT_MARK = "…[cut]".encode()


def message_headers(dead_letter: DeadLetter, *, context: bool, row: bool) -> list[Header]:
    """Return the record's own headers, then ours. Readers ignore what precedes our record ID.

    Args:
        context: Whether the headers of Kafka Connect and Kafka Streams are added.
        row: Whether the source row is added.
    """
    original = [(header["key"] or "", header["value"]) for header in dead_letter["headers"] or ()]
    added = _added_headers(dead_letter, context=context, row=row)
    if dead_letter.get("cut"):
        added = [(name, _shortened(value)) for name, value in added]
        added.append((f"{_OURS}cut", b"true"))
    return [*original, *added]


def has_large_headers(dead_letter: DeadLetter, *, context: bool, row: bool) -> bool:
    """Whether a dead letter becomes smaller if our headers are cut."""
    if dead_letter.get("cut"):
        return False
    added = _added_headers(dead_letter, context=context, row=row)
    return any(len(value or b"") > _HEADER_BYTES for _, value in added)


def _added_headers(dead_letter: DeadLetter, *, context: bool, row: bool) -> list[Header]:
    # The first of our own: a reader ignores headers of an earlier dead letter before it.
    added: list[tuple[str, object]] = [(f"{_OURS}record.id", dead_letter["id"])]
    if context:
        added = [*_connect_headers(dead_letter), *_streams_headers(dead_letter), *added]
        added += [
            (f"{_OURS}{name}", dead_letter[name])
            for name in ("application", "checkpoint", "task", "position", "stage", "condition")
        ]
        added += [
            (f"{_OURS}reason", dead_letter["reason"]),
            (f"{_OURS}at", dead_letter["at"].astimezone(timezone.utc).isoformat("T", _PRECISION)),
        ]
        if dead_letter.get("source") is not None:
            added.append((f"{_OURS}source", dead_letter["source"]))
    if dead_letter["configs"] is not None:
        added.append((f"{_OURS}configs", dead_letter["configs"]))
    if row:
        added.append((f"{_OURS}row", dead_letter["row"]))
    return [(name, _bytes(value)) for name, value in added]


def _connect_headers(dead_letter: DeadLetter) -> list[tuple[str, object]]:
    stage = dead_letter["stage"] or "process"
    headers = {
        "topic": dead_letter["topic"],
        "partition": dead_letter["partition"],
        "offset": dead_letter["offset"],
        "connector.name": dead_letter["pipeline"],
        "task.id": dead_letter["task"],
        "stage": _CONNECT_STAGES.get(stage.partition(":")[0], stage),
        "class.name": dead_letter["executing_class"],
        "exception.class.name": dead_letter["exception_class"],
        "exception.message": dead_letter["message"] or None,
        "exception.stacktrace": _trace(dead_letter),
    }
    return [(f"{_CONNECT}{name}", value) for name, value in headers.items()]


def _streams_headers(dead_letter: DeadLetter) -> list[tuple[str, object]]:
    headers = {
        "exception": dead_letter["exception_class"],
        "message": dead_letter["message"] or None,
        "stacktrace": _trace(dead_letter),
        "topic": dead_letter["topic"],
        "partition": dead_letter["partition"],
        "offset": dead_letter["offset"],
    }
    return [(f"{_STREAMS}{name}", value) for name, value in headers.items()]


def _trace(dead_letter: DeadLetter) -> str:
    """Return the trace, preceded by class and message as in Java."""
    stack: str = dead_letter["stack"] or ""
    name = dead_letter["exception_class"] or ""
    if name and stack.startswith(name):
        return stack
    message = dead_letter["message"]
    return f"{name}{f': {message}' if message else ''}\n{stack}".rstrip("\n")


def _bytes(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode(errors="replace")


def _shortened(value: bytes | None) -> bytes | None:
    if value is None or len(value) <= _HEADER_BYTES:
        return value
    return value[:_HEADER_BYTES].decode(errors="ignore").encode() + _CUT_MARK

"""A dead letter from the parts of its message, or why it cannot be had."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from arrester.domain.wire.dead_letter_messages import dead_letter_of

OWN: dict[str, bytes | None] = {
    "record.id": b"0123",
    "application": b"flights",
    "checkpoint": b"0190",
    "task": b"flights-0",
    "position": b"10",
    "stage": b"deserialize",
    "at": b"2026-11-26T23:59:59.123456+00:00",
}
COLUMNS = {"key": "binary", "value": "binary", "topic": "flights", "offset": 10, "headers": 2}


def headers(**changed: bytes | None) -> list[tuple[str, bytes | None]]:
    """Return the headers of a message; `_` in a name is a dot, an empty value removes it."""
    own = OWN | {name.replace("_", "."): value for name, value in changed.items()}
    return [(f"__arrester.{name}", value) for name, value in own.items() if value != b""]


def test_the_source_row_has_the_key_the_value_and_the_first_headers() -> None:
    original: list[tuple[str, bytes | None]] = [("trace", b"\x00\xff"), ("__arrester.at", None)]
    source = json.dumps(COLUMNS).encode()

    found = dead_letter_of(b"\xff", None, [*original, *headers(source=source)])

    assert found.problem is None
    assert (found.id, found.application, found.checkpoint) == ("0123", "flights", "0190")
    assert (found.task, found.position, found.stage) == ("flights-0", 10, "deserialize")
    assert found.at == datetime(2026, 11, 26, 23, 59, 59, 123_456, UTC)
    assert json.loads(found.row or "") == {
        "key": "/w==",
        "value": None,
        "topic": "flights",
        "offset": 10,
        "headers": [{"key": "trace", "value": "AP8="}, {"key": "__arrester.at", "value": None}],
    }


def test_texts_stay_texts_and_a_row_may_be_the_value_or_a_header() -> None:
    source = json.dumps({"value": "string", "headers": None}).encode()
    found = dead_letter_of(None, "é".encode(), headers(source=source))
    assert found.row == '{"value":"é","headers":null}'
    value = dead_letter_of(None, b'{"a":1}', headers(source=b'"value"'))
    assert value.row == '{"a":1}'
    header = dead_letter_of(None, b"x", headers(row=b'{"a":2}', source=b'"value"'))
    assert header.row == '{"a":2}'
    whole = dead_letter_of(None, b"x", headers(task=None, position=None, row=b"{}"))
    assert (whole.task, whole.position) == (None, None)


def test_headers_of_an_earlier_dead_letter_are_ignored() -> None:
    earlier = headers(row=b'{"a":0}', position=b"3", cut=b"true", configs=b"{}")
    later = headers(record_id=b"4567", position=b"", source=b'"value"')
    for foreign in ([], [("__arrester.row", b"\xff no row")], earlier):
        found = dead_letter_of(None, b'{"a":1}', [*foreign, *later])
        assert (found.id, found.problem, found.row) == ("4567", None, '{"a":1}')
        assert found.position is None
    counted = headers(source=json.dumps({"value": "string", "headers": len(earlier)}).encode())
    row = json.loads(dead_letter_of(None, b"x", [*earlier, *counted]).row or "")
    assert [each["key"] for each in row["headers"]] == [name for name, _ in earlier]


def test_an_earlier_dead_letter_gives_no_context_to_one_without() -> None:
    earlier, later = headers(source=b'"value"'), [("__arrester.record.id", b"4567")]
    found = dead_letter_of(None, b"{}", [*earlier, *later])
    assert (found.id, found.application) == ("4567", None)
    assert (found.problem or "").startswith("has no header __arrester.checkpoint")


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"record_id": b""}, "is no dead letter: it has no header __arrester.record.id"),
        ({"at": b""}, "has no header __arrester.at: an earlier version"),
        ({"checkpoint": b""}, "has no header __arrester.checkpoint"),
        ({}, "does not contain its source row: set errors.dlq.include.messages"),
        ({"row": "{…[cut]".encode()}, "does not contain its source row"),
        ({"task": "x…[cut]".encode()}, "was too large, and its header __arrester.task was cut"),
        ({"at": b"yesterday"}, "has an invalid header"),
        ({"position": b"ten"}, "has an invalid header"),
        ({"source": b"{"}, "has an invalid header"),
        ({"source": b"[]"}, "has an invalid header"),
        ({"source": b'{"headers": "two"}'}, "has an invalid header"),
    ],
)
def test_other_messages_have_a_problem(changed: dict[str, Any], problem: str) -> None:
    found = dead_letter_of(b"k", b"v", headers(**changed))
    assert (found.problem or "").startswith(problem)
    assert found.row is None

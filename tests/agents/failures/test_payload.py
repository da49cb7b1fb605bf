"""The reported parts of a failed record have no secrets, JSON values, and at most 16 KB."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import msgspec
import pytest
from pyspark.sql import Row

from arrester.agents.failures.payload import RECORD_BYTES, Redaction, jsonable
from arrester.domain.events import Body

RULES = ("password", "secret", "token", "key")


def shown(row: dict[str, Any], *rules: str, key: str | None = None) -> dict[str, Any]:
    record = Redaction(builtin=rules or RULES, key=key).body(row, stack=None).record
    assert record is not None
    return record


def test_fields_with_names_of_secrets_are_dropped_at_any_depth() -> None:
    row = {"User_Password": "x", "who": Row(name="ana", api_token="t"), "many": [{"secret": 1}]}
    body = Redaction(drop=RULES).body(row, stack=None)

    assert body.record == {"who": {"name": "ana"}, "many": [{}]}
    assert body.redacted == ("User_Password", "who.api_token", "many.secret")


def test_the_declared_key_column_stays() -> None:
    assert shown({"key": "LH 400", "api_key": "x"}, key="key") == {"key": "LH 400"}


def test_secrets_inside_json_texts_are_dropped() -> None:
    body = shown({"value": '{"name": "ana", "password": "x"}', "plain": "not json: password"})

    assert json.loads(body["value"]) == {"name": "ana"}
    assert body["plain"] == "not json: password"


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "ana", "Api_KEY": "x", "rest": "cut of',
        ' [{"pass\\u0077ord": "x"}, ',
        '\ufeff{"password": "x"}',
        '{"who": {"password": "x"}, "who": 1}',
        '{"card": {"number": "4711"',
        "[" * 100_000 + '"password"',
    ],
)
def test_unreadable_json_that_names_a_redacted_field_is_not_shown(text: str) -> None:
    body = Redaction(drop=(*RULES, "$.card.number")).body({"value": text}, stack=None)

    assert body.record == {"value": "…[not shown: unreadable JSON that names a redacted field]"}
    assert body.redacted == ("value",)


def test_unreadable_json_without_a_redacted_name_is_shown() -> None:
    texts = {"value": '{"name": "ana', "greeting": "the key is under the mat"}
    assert shown(texts) == texts


def test_half_a_surrogate_pair_can_be_written() -> None:
    text = r'{"name": "half \ud83d", "\udc80": 1, "password": "x", "\udc81": {"token": 1}}'
    body = Redaction(drop=RULES).body({"value": text, "plain\udc80": "\udc80"}, stack="\udc80")

    assert body.record is not None
    assert body.record["value"] == '{"name": "half ?", "?": 1, "?": {}}'
    assert msgspec.json.decode(msgspec.json.encode(body), type=Body) == body
    assert body.stack == "?"
    assert body.redacted == ("value.password", "value.?.token")


def test_a_large_text_with_half_a_surrogate_pair_is_truncated() -> None:
    body = shown({"value": "\udc80" + "x" * 2 * RECORD_BYTES})
    assert body["value"].startswith("?x")


def test_a_path_drops_only_its_own_field() -> None:
    row = {"card": {"number": "4711", "kind": "visa"}, "number": 3}
    assert shown(row, "$.card.number") == {"card": {"kind": "visa"}, "number": 3}


def test_a_large_record_is_truncated_and_marked() -> None:
    row = {"position": 7, "value": "é" * 40_000, "rest": ["x" * 100] * 500}
    body = Redaction(drop=RULES).body(row, stack="trace")

    assert body.record is not None
    assert body.record["position"] == 7
    assert body.record["value"].endswith("…[cut]")
    assert body.cut_from is not None
    assert body.cut_from > 80_000
    assert len(json.dumps(body.record, ensure_ascii=False).encode()) <= RECORD_BYTES
    assert body.stack == "trace"


def test_a_row_of_thousands_of_columns_is_truncated() -> None:
    row = {f"column_{n}": "some text" for n in range(5_000)}
    size = len(json.dumps(shown(row), ensure_ascii=False).encode())
    assert size <= RECORD_BYTES + 100


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), "2026-01-02T00:00:00+00:00"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (datetime.time(6, 41), "06:41:00"),
        (decimal.Decimal("1.20"), "1.20"),
        (float("nan"), "nan"),
        (b"text", "text"),
        (b"\xff\x00", "base64:/wA="),
        ({1: (2, 3)}, {"1": [2, 3]}),
        (datetime.timedelta(seconds=1), "datetime.timedelta(seconds=1)"),
    ],
)
def test_values_become_json(value: object, expected: object) -> None:
    assert jsonable(value) == expected
    json.dumps(jsonable(value), allow_nan=False)

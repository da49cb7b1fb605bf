"""Pairs of Avro schemas that differ in logical types, at any depth."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arrester.agents.spark.avro_logical_types import resolution


def logical(base: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": kind, **more}


def decimal(precision: int, scale: int, base: str = "bytes", **more: Any) -> dict[str, Any]:
    return logical(base, "decimal", precision=precision, scale=scale, **more)


def record(*types: Any, name: str = "Flight", **more: Any) -> dict[str, Any]:
    fields = [{"name": f"f{n}", "type": each} for n, each in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields, **more}


def differences(written: Any, read: Any) -> list[str]:
    return [*map(str, resolution(json.dumps(written), json.dumps(read)).differences)]


MILLIS, MICROS = logical("long", "timestamp-millis"), logical("long", "timestamp-micros")
NANOS = logical("long", "timestamp-nanos")
LOCAL = logical("long", "local-timestamp-millis")
LOCAL_MICROS = logical("long", "local-timestamp-micros")
DATE, TIME = logical("int", "date"), logical("int", "time-millis")
TIME_MICROS, UUID = logical("long", "time-micros"), logical("string", "uuid")
ANY_SCALE = logical("bytes", "big-decimal")


@pytest.mark.parametrize(
    ("written", "read", "texts"),
    [
        (decimal(10, 4), decimal(10, 2), "decimal(10,4) decimal(10,2)"),
        (decimal(10, 2), decimal(10, 4), "decimal(10,2) decimal(10,4)"),
        (decimal(10, 2), decimal(4, 2), "decimal(10,2) decimal(4,2)"),
        (decimal(10, 2), ANY_SCALE, "decimal(10,2) big-decimal"),
        ("bytes", decimal(10, 2), "bytes decimal(10,2)"),
        ("string", decimal(10, 2), "string decimal(10,2)"),
        (decimal(10, 2), "string", "decimal(10,2) string"),
        (MILLIS, NANOS, "timestamp-millis timestamp-nanos"),
        (NANOS, MICROS, "timestamp-nanos timestamp-micros"),
        (MILLIS, LOCAL, "timestamp-millis local-timestamp-millis"),
        ("long", MICROS, "long timestamp-micros"),
        ("int", DATE, "int date"),
        ("int", MILLIS, "int timestamp-millis"),
        (DATE, MILLIS, "date timestamp-millis"),
        (DATE, TIME, "date time-millis"),
        (TIME, TIME_MICROS, "time-millis time-micros"),
    ],
)
def test_values_that_would_be_misread_are_named_with_both_types(
    written: Any, read: Any, texts: str
) -> None:
    before, after = texts.split()
    what = f"was written as {before}, and is read as {after}"
    assert differences(written, read) == [f"the value {what}"]
    assert differences(record(written), record(read)) == [f"f0 {what}"]
    assert differences(record(written), record(["null", read])) == [f"f0 {what}"]
    assert differences(record(["null", written]), record([read, "null"])) == [f"f0 {what}"]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        *((each, each) for each in (decimal(10, 2), NANOS, DATE, TIME, UUID, ANY_SCALE)),
        (decimal(10, 2), decimal(12, 2)),
        (decimal(10, 2), "bytes"),
        (DATE, "int"),
        (DATE, "long"),
        (MILLIS, "long"),
        ("string", UUID),
        (UUID, "string"),
        ("int", "long"),
        # Avro ignores a logical type that is unknown or of another type.
        ("long", logical("long", "date")),
        ("long", logical("long", "ticks")),
        ("bytes", decimal(2, 4)),
        # Avro refuses the value itself.
        ("boolean", DATE),
        (record(DATE), DATE),
    ],
)
def test_values_that_are_read_exactly_have_no_difference(written: Any, read: Any) -> None:
    assert differences(written, read) == []
    assert differences(record(written), record(["null", read])) == []


def test_units_of_timestamps_are_read_as_the_writer_has_them() -> None:
    for written, read in ((MILLIS, MICROS), (MICROS, MILLIS), (LOCAL, LOCAL_MICROS)):
        found = resolution(json.dumps(record(written, "int")), json.dumps(record(read, "long")))
        assert found.differences == ()
        assert json.loads(found.schema) == record(written, "long")
    same = json.dumps(record(MICROS))
    assert resolution(same, same).schema == same


def test_differences_are_found_at_any_depth_and_in_named_types() -> None:
    def nested(value: Any) -> dict[str, Any]:
        leg = record({"type": "map", "values": ["null", value]}, name="Leg")
        return record({"type": "array", "items": leg}, value, name="Trip", namespace="air")

    assert differences(nested(decimal(9, 3)), nested(decimal(9, 2))) == [
        f"{path} was written as decimal(9,3), and is read as decimal(9,2)"
        for path in ("f0.element.f0.value", "f1")
    ]
    money = decimal(9, 2, "fixed", name="Money", size=8)
    other = decimal(9, 3, "fixed", name="Money", size=8)
    assert differences(record(money, "Money"), record(other, "Money")) == [
        f"f{n} was written as decimal(9,2), and is read as decimal(9,3)" for n in (0, 1)
    ]
    tree: dict[str, Any] = record(["null", "air.Tree"], MILLIS, name="Tree", namespace="air")
    later: dict[str, Any] = record(["null", "Tree"], MICROS, name="Tree", namespace="air")
    found = resolution(json.dumps(tree), json.dumps(later))
    assert (found.differences, json.loads(found.schema)["fields"][1]["type"]) == ((), MILLIS)


def test_fields_are_found_by_name_and_alias_and_others_have_no_difference() -> None:
    written = {"type": "record", "name": "R", "fields": [{"name": "old", "type": DATE}]}
    reader: dict[str, Any] = {"type": "record", "name": "R"}
    reader["fields"] = [
        {"name": "new", "aliases": ["old"], "type": MILLIS},
        {"name": "more", "type": MILLIS, "default": 0},
    ]
    assert differences(written, reader) == [
        "new was written as date, and is read as timestamp-millis"
    ]


def test_one_type_of_the_reader_that_the_writer_has_in_two_units_is_a_difference() -> None:
    def points(first: Any, second: Any) -> dict[str, Any]:
        return record(record(first, name="A"), record(second, name="B"))

    reader = record(record(MICROS, name="Point"), "Point")
    for units in ((MILLIS, MICROS), (MICROS, MILLIS)):
        assert len(differences(points(*units), reader)) == 1


@pytest.mark.parametrize("text", ["", "null", '{"type": "record"}', "[[]]", '"Unknown"'])
def test_a_text_that_is_no_schema_is_left_to_spark(text: str) -> None:
    assert resolution(text, '"int"').schema == '"int"'
    assert resolution('"int"', text).differences == ()

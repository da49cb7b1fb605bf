"""JSON Patches of records (RFC 6902): what they change, what they keep, and what is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrester.domain.errors import InvalidValue
from arrester.domain.json_patch import (
    MAX_CHARACTERS,
    MAX_OPERATIONS,
    JsonPatch,
    PatchFailed,
    difference,
)

RECORD = (
    '{"id":123456789012345678901234567890,"f":1.10000000000000000000001,"d":"NA",'
    '"s":{"y":1.2345678901234567890123},"a~/b":[1,2]}'
)


def patched(*operations: dict[str, object], record: str = RECORD) -> str:
    return JsonPatch(json.dumps(operations)).apply(record)


def test_a_column_that_is_not_named_keeps_its_text() -> None:
    changed = patched(
        {"op": "test", "path": "/d", "value": "NA"},
        {"op": "replace", "path": "/d", "value": None},
        {"op": "add", "path": "/s/x", "value": 1.5},
    )
    assert changed == (
        '{"id":123456789012345678901234567890,"f":1.10000000000000000000001,"a~/b":[1,2],'
        '"d":null,"s":{"y":1.2345678901234567890123,"x":1.5}}'
    )


def test_columns_have_any_name() -> None:
    assert json.loads(patched({"op": "remove", "path": "/a~0~1b/0"}))["a~/b"] == [2]
    moved = json.loads(patched({"op": "move", "from": "/d", "path": "/e"}))
    assert "d" not in moved and moved["e"] == "NA"


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/d", "value": "x"},
        {"op": "replace", "path": "/missing", "value": 1},
        {"op": "remove", "path": "/s/missing"},
        {"op": "add", "path": "/a~0~1b/9", "value": 1},
        {"op": "add", "path": "/a~0~1b/x", "value": 1},
        {"op": "add", "path": "/d/x", "value": 1},
        {"op": "add", "path": "/id/x", "value": 1},
    ],
)
def test_an_operation_that_does_not_apply_changes_nothing(operation: dict[str, object]) -> None:
    with pytest.raises(PatchFailed, match="the patch does not apply"):
        patched(operation)


@pytest.mark.parametrize(
    "text",
    [
        "", "nope", "{}", "[]", "[1]", "[" * 5_000, "[NaN]", '[{"op":"add","path":"/a"}]',
        '[{"op":"copy","from":"/a","path":"/b"}]', '[{"op":"move","path":"/a"}]',
        '[{"op":"add","path":"","value":1}]', '[{"op":"remove","path":"/"}]',
        '[{"op":"remove","path":"a"}]', '[{"op":"remove","path":"/a/~2"}]',
        '[{"op":"remove","path":7}]', '[{"op":["add"],"path":"/a","value":1}]',
        json.dumps([{"op": "remove", "path": "/a"}] * (MAX_OPERATIONS + 1)),
        json.dumps([{"op": "add", "path": "/a", "value": "x" * MAX_CHARACTERS}]),
    ],
)  # fmt: skip
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="patch"):
        JsonPatch(text)


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
_names = st.text(min_size=1, max_size=4)


@given(st.dictionaries(_names, st.tuples(_values, _values), min_size=1, max_size=4))
def test_the_difference_makes_the_edited_record(columns: dict[str, tuple[object, object]]) -> None:
    record = json.dumps({name: before for name, (before, _) in columns.items()})
    edited = json.dumps({name: after for name, (_, after) in columns.items()})
    patch = difference(record, edited)
    found = record if patch is None else patch.apply(record)
    assert json.loads(found) == json.loads(edited)


@pytest.mark.parametrize("edited", ["", "[]", "{}", '{"a":1}', '{"a":1,"b":2,"c":3}', "NaN"])
def test_an_edited_record_has_the_same_columns(edited: str) -> None:
    assert difference('{"a":1,"b":2}', '{"b":2,"a":1}') is None
    with pytest.raises(InvalidValue, match="record"):
        difference('{"a":1,"b":2}', edited)


def test_the_sentence_of_the_parser_is_the_refusal() -> None:
    with pytest.raises(InvalidValue) as of_patch:
        JsonPatch('[{"op": "add" "path": "/a"}]')
    assert str(of_patch.value).startswith("patch: no JSON Patch (RFC 6902): Expecting ',' delim")
    assert "is not allowed" not in str(of_patch.value)
    with pytest.raises(InvalidValue) as of_record:
        difference(RECORD, "{")
    assert str(of_record.value).startswith("record: no JSON: Expecting property name")

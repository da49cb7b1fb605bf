"""Fields of records and of the texts in them: each is written back in its place."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrester.dashboard.text import text_fields
from arrester.dashboard.text.record_changes import Part, changes
from arrester.dashboard.text.record_fields import InvalidFields, edited, is_of, record_fields
from arrester.dashboard.text.text_fields import InvalidField, Kind, parse, replaced

ORDER = """<?xml version="1.0"?>
<order id='7' note="a &amp; b"><!-- one <b> -->
  <line>3 &lt; 4&#33;</line>  <line>5</line><empty/><raw><![CDATA[<x>]]></raw>
</order>"""


@pytest.mark.parametrize(
    ("text", "format", "fields"),
    [
        ('{"a": {"b": [1.50, "x"]}, "d":null}', "JSON", {"a.b.0": "1.50", "a.b.1": "x", "d": ""}),
        ("2013,1,,\"a, b\",NA", "CSV", {"1": "2013", "2": "1", "3": "", "4": "a, b", "5": "NA"}),
        ("a|b|c\r\n", "CSV", {"1": "a", "2": "b", "3": "c"}),
        ("carrier=HA&flight=51&gate=", "key=value", {"carrier": "HA", "flight": "51", "gate": ""}),
        ('is=warn msg="so late" n=3', "key=value", {"is": "warn", "msg": "so late", "n": "3"}),
        ("a=1, b=2", "key=value", {"a": "1", "b": "2"}),
        (
            ORDER,
            "XML",
            {
                "order.@id": "7", "order.@note": "a & b", "order.line": "3 < 4!",
                "order.line 2": "5", "order.raw": "<x>",
            },
        ),
    ],
)  # fmt: skip
def test_the_fields_of_a_text(text: str, format: str, fields: dict[str, str]) -> None:
    found = parse(text)
    assert found is not None and found.format == format
    assert {".".join(each.path): each.value for each in found.fields} == fields
    # Each is replaced by what it is, and nothing changes.
    for each in found.fields:
        same = replaced(text, [(each, each.write(each.value, each.kind))])
        again = parse(same)
        assert again is not None
        assert {".".join(one.path): one.value for one in again.fields} == fields
        assert same[: each.start] == text[: each.start] and same.endswith(text[each.end :])


@pytest.mark.parametrize(
    "text",
    [
        "", "NA", "departed late, a typo, or a very long day", "{", "[]", "{} x", "a=b", "<a>",
        "<a/>",
        "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "https://x.example/?a=1&b=2", "1,2", "a,b,\"c",
        "x" * (text_fields.MAX_CHARACTERS + 1), ",".join("a" * (text_fields.MAX_FIELDS + 1)),
        "a,b,c\nd,e,f", '{"a":1,"b":2,"c":', "<a>,,,", "[" * 50_000,
    ],
)  # fmt: skip
def test_other_texts_are_edited_as_a_whole(text: str) -> None:
    assert parse(text) is None


@pytest.mark.timeout(20)
@pytest.mark.parametrize("part", ["a=1  ,", "a= ", '"",', "<a b='", "&#38;", "a=b&", '"', "<", "-"])
def test_a_hostile_text_takes_no_long_time(part: str) -> None:
    text = part * (text_fields.MAX_CHARACTERS // len(part) - 1)
    for each in (text, f"{text}!", f"<a>{text}", f'{{"a":"{text}'):
        parse(each)


CELLS = st.text(
    st.characters(exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", codec="utf-8")
)


@given(st.lists(CELLS, min_size=3, max_size=6), st.integers(0, 5), CELLS)
def test_a_changed_cell_is_read_back(cells: list[str], number: int, value: str) -> None:
    text = ",".join('"' + each.replace('"', '""') + '"' for each in cells)
    found = parse(text)
    if found is None or found.format != "CSV":
        return
    assert [each.value for each in found.fields] == cells
    chosen = number % len(cells)
    field = found.fields[chosen]
    after = replaced(text, [(field, field.write(value, Kind.TEXT))])
    assert next(csv.reader([after])) == [*cells[:chosen], value, *cells[chosen + 1 :]]


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _values, min_size=1, max_size=4), st.text(), st.data())
def test_a_changed_value_of_json_is_read_back(
    record: dict[str, Any], value: str, data: st.DataObject
) -> None:
    text = json.dumps(record, indent=data.draw(st.sampled_from([None, 2])))
    fields = list(text_fields.json_fields(text))
    assert [each.write(each.value, each.kind) for each in fields] == [
        json.dumps(json.loads(text[each.start : each.end]), ensure_ascii=False) for each in fields
    ]
    if fields:
        field = data.draw(st.sampled_from(fields))
        after = replaced(text, [(field, field.write(value, Kind.TEXT))])
        again = list(text_fields.json_fields(after))
        values = {each.path: each.value for each in again}
        assert values == {each.path: each.value for each in fields} | {field.path: value}


@pytest.mark.parametrize(
    ("value", "kind", "written"),
    [
        (" 1.50 ", Kind.NUMBER, "1.50"), ("-1e3", Kind.NUMBER, "-1e3"),
        ("True", Kind.BOOLEAN, "true"),
        ('a"b', Kind.TEXT, '"a\\"b"'), ("", Kind.NULL, "null"),
        ("NA", Kind.NUMBER, None), ("01", Kind.NUMBER, None), ("1", Kind.BOOLEAN, None),
        ("1", Kind.NULL, None),
    ],
)  # fmt: skip
def test_a_value_has_its_type(value: str, kind: Kind, written: str | None) -> None:
    if written is not None:
        assert text_fields.write_json(value, kind) == written
        return
    with pytest.raises(InvalidField):
        text_fields.write_json(value, kind)


def test_values_that_would_break_their_text_are_refused() -> None:
    for text, value in (
        ("a=1&b=2", "x&y"),
        ("a=1,b=2", "x\ny"),
        ('a="1" b=2', 'x"y'),
        ("<a><![CDATA[x]]></a>", "]]>"),
    ):
        found = parse(text)
        assert found is not None
        with pytest.raises(InvalidField, match="without"):
            found.fields[0].write(value, Kind.TEXT)


RECORD = {
    "id": 7,
    "line": "1,2,NA",
    "body": '{"a": 1.50,  "b": {"c": "x"}}',
    "flag": None,
    "hidden": "a\u202eb",
    "cut": "long…[cut]",
    "deep": {"list": [1, {"x": "a=1&b=2"}]},
    "text": "two\nlines",
}
TEXT = json.dumps(RECORD, indent=2)


def form(**changed: str) -> dict[str, str]:
    """Return what a browser sends: all fields, and the chosen types."""
    found = record_fields(TEXT)
    assert found is not None
    sent = {"digest": found.digest}
    for each in found.fields:
        if not each.locked:
            sent[each.name] = each.value.replace("\n", "\r\n")
            sent |= {f"{each.name}.kind": each.kind.value} if each.has_kinds else {}
    names = {f"{each.column}.{each.path}".rstrip("."): each.name for each in found.fields}
    for label, value in changed.items():
        name, _, kind = label.partition("__kind")
        name = names[name.replace("__", ".")]
        sent[f"{name}.kind" if kind or label.endswith("__kind") else name] = value
    return sent


def test_an_edited_record_differs_in_the_edited_places_only() -> None:
    assert edited(TEXT, form()) == TEXT
    after = edited(TEXT, form(line__3="3", body__a="2.50", body__b__c="y", deep__list__1__x__b="3"))
    assert json.loads(after) == RECORD | {
        "line": "1,2,3",
        "body": '{"a": 2.50,  "b": {"c": "y"}}',
        "deep": {"list": [1, {"x": "a=1&b=3"}]},
    }
    assert after.replace("2.50", "1.50").splitlines()[:2] == TEXT.splitlines()[:2]
    after = edited(TEXT, form(flag="9", flag__kind="number", id__kind="NULL", text="a\r\nb"))
    assert json.loads(after) == RECORD | {"flag": 9, "id": None, "text": "a\nb"}
    assert not is_of(f"{TEXT} ", form()) and is_of(TEXT, form())


def test_what_a_field_cannot_have_is_named_and_kept() -> None:
    with pytest.raises(InvalidFields) as refused:
        edited(TEXT, form(id="NA", flag="9"))
    wrong = {
        each.column: (each.value, each.invalid) for each in refused.value.fields if each.invalid
    }
    assert wrong["id"] == ("NA", "NA is not allowed; allowed: a number, such as 12 or -1.5")
    assert wrong["flag"][0] == "9" and "choose another type" in wrong["flag"][1]


def test_what_a_form_would_change_by_itself_is_locked() -> None:
    found = record_fields(TEXT)
    assert found is not None
    assert {each.column: each.locked for each in found.fields if each.locked} == {
        "hidden": "has invisible characters: edit it as JSON",
        "cut": "truncated",
    }
    assert record_fields(json.dumps(dict.fromkeys(map(str, range(201)), 1))) is None


def test_the_words_that_differ_are_marked() -> None:
    before = {"a": "the quick brown fox", "b": 1, "c": "x" * 500 + " one " + "y" * 500}
    after = {"a": "the slow brown fox", "b": 2, "c": "x" * 500 + " two " + "y" * 500}
    first, second, third = changes(json.dumps(before), json.dumps(after))
    assert [each.text for each in first.before_parts if each.differs] == ["quick"]
    assert "".join(each.text for each in first.after_parts) == '"the slow brown fox"'
    # Nothing is the same.
    assert (second.before_parts, second.after_parts) == ([Part("1", False)], [Part("2", False)])
    shown = "".join(each.text for each in third.after_parts)
    assert " two " in shown and len(shown) < 400
    long = {"a": "a b " * 2_000}, {"a": "a c " * 2_000}
    [change] = changes(*map(json.dumps, long))
    assert [each.differs for each in change.before_parts] == [False]
    assert len(change.before_parts[0].text) == 2_000

"""The fields of a record that the message of its failure names."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from arrester.dashboard.text import record_text
from arrester.dashboard.text.named_fields import MOST_FIELDS, marked, named
from arrester.domain.events import Body
from tests.histories import FAILURE

RECORD = {
    "value": '{"dep_delay": "NA", "crew": [{"id": 1}]}',
    "origin": "JFK",
    "weather": {"wind": 9.2, "gust": None},
    "list": "[not json",
}


@pytest.mark.parametrize(
    ("message", "field", "found"),
    [
        ("KeyError: 'origin'", None, {"origin": []}),
        # The word, not the field.
        ("The value 'NA' of the type \"STRING\" cannot be cast; the origin is 'X'", None, {}),
        ("no gust", None, {}),
        ("bad", "gust", {"weather": ["gust"]}),
        ("bad", "weather.gust", {"weather": ["gust"]}),
        ("bad", "dep_delay", {"value": ["dep_delay"]}),
        ("the path `value.crew.id` is wrong", None, {"value": ["id"]}),
        # pydantic has the path alone in a line.
        (
            "1 validation error\nweather.wind\n  Input should be a number",
            None,
            {"weather": ["wind"]},
        ),
        ("bad", "absent", {}),
        ("''", None, {}),
    ],
)
def test_only_exact_names_are_found(
    message: str, field: str | None, found: dict[str, list[str]]
) -> None:
    failure = replace(FAILURE, message=message, field=field)
    assert named(RECORD, failure) == {top: frozenset(names) for top, names in found.items()}


def test_a_name_inside_a_text_is_marked_and_all_else_is_escaped() -> None:
    text = '{"<b>": 1, "dep\\"x": "<i>\u202e", "other": "dep_delay"}'
    assert marked(text, ["<b>", 'dep"x']) == (
        "{<mark>&quot;&lt;b&gt;&quot;:</mark> 1, <mark>&quot;dep\\&quot;x&quot;:</mark>"
        " &quot;&lt;i&gt;\\u202e&quot;, &quot;other&quot;: &quot;dep_delay&quot;}"
    )
    assert marked("<i>", []) == "&lt;i&gt;"


def test_a_field_is_marked_where_the_record_is_shown() -> None:
    fields = record_text.fields(Body(record=RECORD), replace(FAILURE, field="gust"))
    assert [(each.name, each.named, set(each.inside)) for each in fields] == [
        ("value", False, set()),
        ("origin", False, set()),
        ("weather", True, {"gust"}),
        ("list", False, set()),
    ]
    assert not any(each.named for each in record_text.fields(Body(record=RECORD)))


def test_a_record_of_any_depth_and_size_is_searched_in_part() -> None:
    deep: Any = {}
    for _ in range(5_000):
        deep = {"a": deep}
    wide = {str(n): n for n in range(10 * MOST_FIELDS)}
    failure = replace(FAILURE, message="'a' '3' '19999'")
    assert named(deep, failure) == {"a": frozenset({"a"})}
    assert named(wide, failure) == {"3": frozenset()}
    assert named({"text": "[" * 100_000}, failure) == {}

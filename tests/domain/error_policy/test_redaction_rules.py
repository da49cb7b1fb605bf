"""Names and JSON paths of fields: normalised, and refused if they can match nothing."""

from __future__ import annotations

import re

import pytest

from arrester.domain.error_policy.redaction_rules import fields_parser


@pytest.mark.parametrize(
    ("rule", "means"),
    [
        ("pin", "pin"),
        ("a.b", "$.a.b"),
        ("$.a.b", "$.a.b"),
        ("$.a", "$.a"),
        ("$.items[*].pin", "$.items.pin"),
        ("$.items[0].pin", "$.items.pin"),
        ("items[0][1].pin", "$.items.pin"),
        ("$['a']['b c']", "$.a.b c"),
        ('$["a"].b', "$.a.b"),
        ("$.items[*]", "$.items"),
        ("$name", "$name"),
    ],
)
def test_ordinary_json_paths_are_read(rule: str, means: str) -> None:
    assert fields_parser()(rule) == (means,)


@pytest.mark.parametrize(
    "rule",
    ["$..pin", "$.*.pin", "$.a[?(@.b)].pin", "$.a[1:2].b", "$.a[-1]", "$.", "$[*]", "a..b", "a[b]"],
)
def test_a_path_that_matches_nothing_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match=re.escape(rule)):
        fields_parser()(rule)


def test_rules_that_show_fields_refuse_item_numbers() -> None:
    with pytest.raises(ValueError, match="items"):
        fields_parser(items=False)("$.items[0].name")
    assert fields_parser(items=False)("$.items[*].name, pin") == ("$.items.name", "pin")

"""Errors for cases in an unknown form name the case, the field or word, and the known ones."""

from __future__ import annotations

import pytest

from tests.conformance.cases import Case, Entry, Fields, Form, Known

FORMS: dict[Form, str] = {("given.a",): "a", ("given.b~yes", "expect.c"): "b"}


def case(given: dict[str, object], expect: dict[str, object]) -> Case:
    return Case(
        suite="suite", id="id", given=Fields(given, "given"), expect=Fields(expect, "expect")
    )


def test_a_form_selects_by_fields_and_text() -> None:
    assert case({"a": 1, "b": "yes"}, {"c": 1}).choose(FORMS) == "a"
    assert case({"b": "oh yes"}, {"c": 1}).choose(FORMS) == "b"
    with pytest.raises(AssertionError, match=r"no check for given \['b'\], .* forms: \['given.a'"):
        case({"b": "no"}, {"c": 1}).choose(FORMS)


def test_an_unread_field_is_an_error() -> None:
    one = case({"a": 1, "new": 2, "prose": 3}, {})
    with pytest.raises(AssertionError, match=r"suite/id: no check reads \['given.new'\]; known"):
        one.run(lambda: one.given["a"], {"prose": "a description"})
    one.run(lambda: one.given["new"], ["prose"])


def test_a_missing_field_is_an_error() -> None:
    one = case({"a": 1}, {})
    with pytest.raises(AssertionError, match=r"suite/id: .*given has no field 'b'; it has .'a'."):
        one.run(lambda: one.given["b"], [])


def test_an_unknown_word_is_an_error() -> None:
    with pytest.raises(AssertionError, match=r"unknown word 'x'; known: .'a'."):
        Known({"a": 1})["x"]


def test_an_entry_selects_by_suite_id_and_form() -> None:
    assert Entry(suite="suite", why="x", id="i.", form=("given.a",)).fits(case({"a": 1}, {}))
    assert not Entry(suite="suite", why="x", form=("given.a",)).fits(case({}, {"a": 1}))
    assert not Entry(suite="other", why="x").fits(case({}, {}))

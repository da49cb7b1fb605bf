"""The title of a failure: its condition in words."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arrester.domain.failure_text import TITLES, title
from tests.histories import FAILURE

MALFORMED = "MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION"


@pytest.mark.parametrize(
    ("name", "condition", "inner", "words"),
    [
        ("builtins.ValueError", None, (), "ValueError"),
        ("a.SparkNumberFormatException", None, (), "SparkNumberFormatException"),
        ("a.SparkNumberFormatException", "CAST_INVALID_INPUT", (), "Text is not a number"),
        ("a.SparkArithmeticException", "DIVIDE_BY_ZERO", (), "Division by zero"),
        ("a.SparkException", "SOME_NEW_CONDITION.ONE", (), "Some new condition"),
        ("a.SparkException", MALFORMED, (), "Text cannot be parsed"),
        (
            "a.SparkException",
            MALFORMED,
            ("java.time.format.DateTimeParseException",),
            "Text is not a date or time",
        ),
        ("a.SparkException", MALFORMED, ("b.JsonEOFException",), "JSON is cut off"),
        (
            "a.SparkException",
            MALFORMED,
            ("b.SparkRuntimeException", "SOME_NEW_CONDITION"),
            "Some new condition",
        ),
        ("java.lang.RuntimeException", None, ("b.NewError",), "NewError"),
        ("a.SparkException", MALFORMED, ("b.NewError",), "Text cannot be parsed: NewError"),
        (
            "a.SparkException",
            MALFORMED,
            ("b.SparkRuntimeException", "CANNOT_PARSE_JSON_FIELD", "dep_delay"),
            "JSON value of another type: dep_delay",
        ),
        ("org.postgresql.util.PSQLException", "23505", (), "Row with this key exists"),
        ("org.postgresql.util.PSQLException", "XX000", (), "PSQLException"),
        ("a.Error", "_LEGACY_ERROR_TEMP_2000", (), "Error"),
    ],
)
def test_the_title_is_the_condition_in_words(
    name: str, condition: str | None, inner: tuple[str, ...], words: str
) -> None:
    fields = ("inner_class", "inner_condition", "field")
    given = dict(zip(fields, inner, strict=False))
    assert title(replace(FAILURE, exception_class=name, condition=condition, **given)) == words


def test_titles_are_short() -> None:
    assert all(len(words) <= 40 for words in TITLES.values())

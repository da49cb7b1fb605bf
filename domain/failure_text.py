"""A failure in one line, for people: its title, and its class with its message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from arrester.domain.events import Failure
from arrester.domain.state.states import GroupState

_CONDITION: Final = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
#: The condition of Spark for anything that a parser cannot read. Its cause has the reason.
_MALFORMED: Final = "MALFORMED_RECORD_IN_PARSING"
#: Titles by condition, by class without its package, or by both: where the words of the condition
#: are unclear.
TITLES: Final[dict[str, str]] = {
    "SparkNumberFormatException CAST_INVALID_INPUT": "Text is not a number",
    "SparkDateTimeException CAST_INVALID_INPUT": "Text is not a date or time",
    "SparkRuntimeException CAST_INVALID_INPUT": "Text is not a BOOLEAN",
    "CAST_INVALID_INPUT": "Text does not fit the type",
    "CANNOT_PARSE_TIMESTAMP": "Text is not a date or time of the format",
    "DATETIME_FIELD_OUT_OF_BOUNDS": "No such day or time",
    "DIVIDE_BY_ZERO": "Division by zero",
    "INTERVAL_DIVIDED_BY_ZERO": "Division by zero",
    "REMAINDER_BY_ZERO": "Division by zero",
    "CAST_OVERFLOW": "Number out of the range of its type",
    "NUMERIC_VALUE_OUT_OF_RANGE": "Number out of the range of its type",
    "NUMERIC_OUT_OF_SUPPORTED_RANGE": "Number out of the range of its type",
    "USER_RAISED_EXCEPTION": "Raised by the pipeline",
    "SparkRuntimeException MALFORMED_RECORD_IN_PARSING": "JSON array in place of an object",
    _MALFORMED: "Text cannot be parsed",
    # Causes inside of the condition above.
    "CANNOT_PARSE_JSON_FIELD": "JSON value of another type",
    f"{_MALFORMED}.CANNOT_PARSE_STRING_AS_DATATYPE": "JSON value of another type",
    "_LEGACY_ERROR_TEMP_2133": "JSON value of another type",
    "CannotParseJSONFieldException": "JSON value of another type",
    "INVALID_JSON_ROOT_FIELD": "JSON null in place of an object",
    "DateTimeParseException": "Text is not a date or time",
    "NumberFormatException": "Text is not a number",
    "InputCoercionException": "Number out of the range of its type",
    "JsonParseException": "Text is not JSON",
    "JsonEOFException": "JSON is cut off",
    "WstxUnexpectedCharException": "Text is not XML",
    "WstxEOFException": "XML is cut off",
    "SAXParseException": "Text is not XML",
    "MALFORMED_CSV_RECORD": "CSV with another number of fields",
    # Of sinks: SQLSTATEs, and what Delta and Iceberg report.
    "23502": "NULL in a column that is NOT NULL",
    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED": "NULL in a column that is NOT NULL",
    "NOT_NULL_ASSERT_VIOLATION": "NULL in a column that is NOT NULL",
    "23503": "Missing row of a foreign key",
    "23505": "Row with this key exists",
    "23514": "CHECK constraint violated",
    "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES": "CHECK constraint violated",
    "22001": "Text too long for its column",
    "DELTA_EXCEED_CHAR_VARCHAR_LIMIT": "Text too long for its column",
    "22003": "Number out of the range of its column",
    "CAST_OVERFLOW_IN_TABLE_INSERT": "Number out of the range of its column",
    "22P02": "Text does not fit the type of its column",
    "42501": "Row refused by a right or a policy",
    "P0001": "Raised by a trigger",
}


def short(exception_class: str) -> str:
    """Return the class without its package."""
    return exception_class.rpartition(".")[2] or exception_class


def cause(failure: Failure | GroupState) -> str:
    """Return a failure in a line: its class without the package, and its message's first line."""
    first = failure.message.strip().partition("\n")[0]
    name = short(failure.exception_class)
    return f"{name}: {first}" if first else name


def title(failure: Failure | GroupState) -> str:
    """Return the title of a failure: the condition in words, with the field that Spark names.

    Without a condition it is the class.
    """
    words = None
    if failure.inner_class:
        words = _words(failure.inner_class, failure.inner_condition or None)
    if words is None:
        words = _words(failure.exception_class, failure.condition)
        if words is not None and failure.inner_class:
            words = f"{words}: {short(failure.inner_class)}"
    words = words or short(failure.inner_class or failure.exception_class)
    return f"{words}: {failure.field}" if failure.field else words


def _words(exception_class: str, condition: str | None) -> str | None:
    found = (TITLES[name] for name in names(exception_class, condition) if name in TITLES)
    return next(found, None) or _in_words(condition)


def _in_words(condition: str | None) -> str | None:
    """Return a condition of Spark as words; None for a SQLSTATE or none."""
    name = (condition or "").partition(".")[0]
    is_named = _CONDITION.fullmatch(name) and not name.startswith("_")
    return name.replace("_", " ").capitalize() if is_named else None


def names(exception_class: str, condition: str | None) -> Iterator[str]:
    """Yield the names of an exception, the most specific one first."""
    name = short(exception_class)
    if condition:
        yield f"{name} {condition}"
        yield condition
        # A.B is an A, and SQLSTATE 23505 is a 23.
        parent = condition.partition(".")[0]
        yield f"{name} {parent}"
        yield parent
        if len(condition) == 5 and "_" not in condition:
            yield condition[:2]
    yield name

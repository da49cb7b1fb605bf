"""What to do about a failure, by its class and condition: docs/reference/failure-classes.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from arrester.domain.events import Failure
from arrester.domain.failure_text import names
from arrester.domain.state.states import GroupState

_PRODUCER: Final = "Correct the producer."
_CONSTRAINT: Final = "Correct the record or the constraint, then resume."
_OUTAGE: Final = "Set `errors.retry.timeout`, so that an outage is waited for."
_WIDER: Final = "The number is out of the range of its type: use a wider type."
_SHORTER: Final = "The result is too large: limit the number."
_CASTS: Final = "`try_cast` gives NULL, and `on=` answers `CAST_INVALID_INPUT`."
#: By condition, by class without its package, or by both.
ADVICE: Final[dict[str, str]] = {
    # Of any pipeline.
    "WrongType": "Return what the columns of the step have, or pass `schema=`. Values of NumPy and"
    " pandas need `.tolist()`, and a missing one is None.",
    "Unreadable": "Python cannot hold a value of the record: cast it in `.columns` before.",
    "WorkerCrashed": "The record ends the Python process: read Python's trace in the stack.",
    "NotRepeated": "It failed on an executor only: make the expression deterministic.",
    "PositionMissing": "Correct `position=`, or answer with `on_error=` of the pipeline.",
    "PositionNotUnique": "Several records have this position: correct `task=` or `position=`.",
    "TaskRaised": "Extract the key with `F.get_json_object` or `try_cast`.",
    "PositionRaised": "Extract the position with `F.get_json_object` or `try_cast`.",
    # Of native steps.
    "SparkNumberFormatException": f"A text is no number: {_CASTS}",
    "SparkDateTimeException": f"A text is no date or time: {_CASTS}",
    "SparkNumberFormatException CAST_INVALID_INPUT": f"A text is no number: {_CASTS}",
    "SparkDateTimeException CAST_INVALID_INPUT": f"A text is no date or time: {_CASTS}",
    "SparkRuntimeException CAST_INVALID_INPUT": "A text is no BOOLEAN: `try_cast` gives NULL.",
    "CAST_INVALID_INPUT": f"A text does not fit the type: {_CASTS}",
    "CANNOT_PARSE_TIMESTAMP": "A text does not have the format: `try_to_timestamp` gives NULL.",
    "DATETIME_FIELD_OUT_OF_BOUNDS": f"There is no such day or time. {_PRODUCER}",
    "INVALID_TIMEZONE": f"There is no such time zone. {_PRODUCER}",
    "DIVIDE_BY_ZERO": "`try_divide` gives NULL.",
    "REMAINDER_BY_ZERO": "`try_mod` gives NULL.",
    "INTERVAL_DIVIDED_BY_ZERO": "`try_divide` gives NULL.",
    "ARITHMETIC_OVERFLOW": _WIDER,
    "BINARY_ARITHMETIC_OVERFLOW": _WIDER,
    "DATETIME_OVERFLOW": _WIDER,
    "INTERVAL_ARITHMETIC_OVERFLOW": _WIDER,
    "CAST_OVERFLOW": _WIDER,
    "NUMERIC_VALUE_OUT_OF_RANGE": _WIDER,
    "NUMERIC_OUT_OF_SUPPORTED_RANGE": _WIDER,
    "ArithmeticException": _SHORTER,
    "INVALID_ARRAY_INDEX": "The array is shorter: `F.get` gives NULL.",
    "INVALID_ARRAY_INDEX_IN_ELEMENT_AT": "The array is shorter: `try_element_at` gives NULL.",
    "SparkRuntimeException MALFORMED_RECORD_IN_PARSING": "An array is where the schema has an"
    f" object. {_PRODUCER}",
    # Spark's message suggests PERMISSIVE.
    "MALFORMED_RECORD_IN_PARSING": f"The text cannot be parsed. {_PRODUCER} Mode `PERMISSIVE` is"
    " refused: it would return NULL in silence.",
    "USER_RAISED_EXCEPTION": "The pipeline raised it by `raise_error` or `assert_true`.",
    "DUPLICATED_MAP_KEY": f"A map has a key twice. {_PRODUCER}",
    "NULL_MAP_KEY": f"A map has the key NULL. {_PRODUCER}",
    "INVALID_INDEX_OF_ZERO": "Positions begin with 1.",
    "COLLECTION_SIZE_LIMIT_EXCEEDED": "The array is too long: limit the number.",
    "INVALID_PARAMETER_VALUE": f"A column has an invalid parameter. {_PRODUCER}",
    "INVALID_REGEXP_REPLACE": f"A column has an invalid regular expression. {_PRODUCER}",
    "MALFORMED_CHARACTER_CODING": f"The character set lacks a character. {_PRODUCER}",
    "INVALID_VARIANT_CAST": "The value has another type: `try_variant_get` gives NULL.",
    "INVALID_VARIANT_GET_PATH": "There is no such path: `try_variant_get` gives NULL.",
    "INVALID_URL": "`try_parse_url` gives NULL.",
    "CANNOT_DECODE_URL": "`try_url_decode` gives NULL.",
    "CONVERSION_INVALID_INPUT": "A text does not have the format: `try_to_binary` gives NULL.",
    "INVALID_FORMAT": "A text does not have the format: `try_to_number` gives NULL.",
    "INVALID_INTERVAL_FORMAT": f"A text is no interval. {_PRODUCER}",
    "INVALID_UTF8_STRING": f"A text is not UTF-8. {_PRODUCER}",
    "ILLEGAL_DAY_OF_WEEK": f"There is no such day of the week. {_PRODUCER}",
    "INVALID_DATETIME_PATTERN": f"A column has an invalid format. {_PRODUCER}",
    "IllegalArgumentException": "If `sequence` raised it, correct the step.",
    "RuntimeException": f"If `xpath` raised it, the text is no XML document. {_PRODUCER}",
    "TextParsingException": f"The text is no CSV. {_PRODUCER}",
    "InvalidFrame": f"The value has no frame of a registry, or another message. {_PRODUCER}",
    "UnknownSchemaId": "Register the schema, then resume the task.",
    "LogicalTypeMismatch": "Give `schema=` with the writer's type, or correct the producer.",
    # Of sinks.
    "23502": f"A column is NOT NULL. {_CONSTRAINT}",
    "23514": f"A CHECK constraint is violated. {_CONSTRAINT}",
    "23505": f"{_CONSTRAINT} `key=` updates the row that exists.",
    "23503": f"The row that it refers to is missing. {_CONSTRAINT}",
    "22001": f"A text is too long for its column. {_CONSTRAINT}",
    "22P02": f"A text does not fit the type of its column. {_CONSTRAINT}",
    "P0001": "A trigger raised it: see its message.",
    "42501": "A right or a policy is missing: correct the record, the policy or the rights.",
    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED": f"A column is NOT NULL. {_CONSTRAINT}",
    "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES": f"A CHECK constraint is violated. {_CONSTRAINT}",
    "DELTA_EXCEED_CHAR_VARCHAR_LIMIT": f"A text is too long for its column. {_CONSTRAINT}",
    "NOT_NULL_ASSERT_VIOLATION": f"A column is NOT NULL. {_CONSTRAINT}",
    "CAST_OVERFLOW_IN_TABLE_INSERT": f"A value is out of the range of its column. {_CONSTRAINT}",
    "RecordTooLargeException": "Raise `max.message.bytes`, or use `.produce`.",
    "MSG_SIZE_TOO_LARGE": "Raise `max.message.bytes`.",
    "INVALID_TIMESTAMP": "Raise `message.timestamp.after.max.ms` or"
    " `message.timestamp.before.max.ms` of the topic.",
    "INVALID_RECORD": "The topic is compacted: give a key, or another `cleanup.policy`.",
    # Of no record.
    "TimeoutError": _OUTAGE,
    "ConnectionError": _OUTAGE,
    "SocketException": _OUTAGE,
    "08": _OUTAGE,
    "40": _OUTAGE,
    "53": _OUTAGE,
    "55P03": _OUTAGE,
    "57": f"{_OUTAGE} If a trigger is too slow for one row, raise `statement_timeout`.",
    "25P03": _OUTAGE,
    "25P04": _OUTAGE,
    "TimeoutException": _OUTAGE,
    "NotEnoughReplicasException": _OUTAGE,
    "DeltaConcurrentModificationException": _OUTAGE,
    "CommitFailedException": _OUTAGE,
    "PermissionError": "Correct the login or its rights, then start again.",
    "28": "Correct the login or its rights, then start again.",
    "TopicAuthorizationException": "Grant the right, then start again.",
    "SaslAuthenticationException": "Correct the password, then start again.",
    "TABLE_OR_VIEW_NOT_FOUND": "Create the table.",
    "42P01": "Create the table.",
    "ImportError": "Install the module on executors, or add it with `addPyFile`.",
    "ModuleNotFoundError": "Install the module on executors, or add it with `addPyFile`.",
    "VirtualMachineError": "Give executors more memory or stack.",
    "OutOfMemoryError": "Give executors more memory.",
    "StackOverflowError": "Give executors more stack.",
    "LinkageError": "Add the missing class to the executors.",
    "NoClassDefFoundError": "Add the missing class to the executors.",
    "ProducerFencedException": "Nothing: a newer run continues.",
    "FetchFailedException": "Nothing: the query restarts at its checkpoint.",
}


_AS_TEXT: Final = "Declare the field as STRING and use `try_cast`, or correct the producer."
#: By condition or class of the cause that a parser has for MALFORMED_RECORD_IN_PARSING. `on=`
#: answers that condition, not the cause.
PARSED: Final[dict[str, str]] = {
    "CANNOT_PARSE_JSON_FIELD": f"A JSON value has another type than the schema. {_AS_TEXT}",
    "_LEGACY_ERROR_TEMP_2133": f"A JSON value has another type than the schema. {_AS_TEXT}",
    "CannotParseJSONFieldException": f"The text is JSON of another type. {_PRODUCER}",
    "INVALID_JSON_ROOT_FIELD": f"The text is the JSON `null`. {_PRODUCER}",
    "CAST_INVALID_INPUT": f"A text is no date or time. {_AS_TEXT}",
    "DateTimeParseException": f"A text is no date or time. {_AS_TEXT}",
    "NumberFormatException": f"A text is no number. {_AS_TEXT}",
    "NUMERIC_VALUE_OUT_OF_RANGE": _WIDER,
    "InputCoercionException": _WIDER,
    "JsonParseException": f"The text is no JSON. {_PRODUCER}",
    "JsonEOFException": f"The text ends inside its JSON. {_PRODUCER}",
    "MALFORMED_CSV_RECORD": f"The text has another number of fields. {_PRODUCER}",
    "WstxUnexpectedCharException": f"The text is no XML. {_PRODUCER}",
    "WstxEOFException": f"The text ends inside its XML. {_PRODUCER}",
}
_MALFORMED: Final = "MALFORMED_RECORD_IN_PARSING"


def advice(failure: Failure | GroupState) -> str:
    """Return what to do about a failure, with code in backquotes; empty if nothing is known."""
    own = names(failure.exception_class, failure.condition)
    if not failure.inner_class:
        return _first(ADVICE, own)
    inner = names(failure.inner_class, failure.inner_condition or None)
    if (failure.condition or "").startswith(_MALFORMED):
        return _first(PARSED, inner) or _first(ADVICE, own)
    return _first(ADVICE, inner) or _first(ADVICE, own)


def _first(known: Mapping[str, str], names: Iterator[str]) -> str:
    return next((known[name] for name in names if name in known), "")

"""The innermost cause of an exception, and the field or column that its message names."""

from __future__ import annotations

import pytest

from arrester.domain.error_policy.exception_identity import Cause, innermost
from arrester.domain.error_policy.named_fields import named_column, named_field

MALFORMED = "MALFORMED_RECORD_IN_PARSING"
WRAPPER = f"{MALFORMED}.WITHOUT_SUGGESTION"


def chain(*links: tuple[str, str | None]) -> list[Cause]:
    return [Cause(names=(name, "java.lang.Exception"), condition=found) for name, found in links]


@pytest.mark.parametrize(
    ("links", "found"),
    [
        ([("Spark", "DIVIDE_BY_ZERO")], None),
        # The first exception has the reason, and its cause has only a class.
        ([("Spark", "CANNOT_PARSE_TIMESTAMP"), ("DateTime", None)], None),
        ([("Spark", WRAPPER), ("Json", None)], "Json"),
        ([("Spark", WRAPPER), ("Bad", None), ("Partial", None), ("DateTime", None)], "DateTime"),
        ([("Spark", WRAPPER), ("Runtime", "CANNOT_PARSE_JSON_FIELD"), ("Other", None)], "Runtime"),
        ([("Spark", WRAPPER), ("Bad", "INTERNAL_ERROR"), ("Format", None)], "Format"),
        ([("Spark", MALFORMED), ("Json", None)], "Json"),
        ([("Spark", f"{MALFORMED}.CANNOT_PARSE_STRING_AS_DATATYPE"), ("Json", None)], None),
        ([("Spark", "FAILED_EXECUTE_UDF"), ("Own", None)], "Own"),
        ([("Runtime", None), ("SAX", None)], "SAX"),
        ([("Runtime", None), ("Runtime", None)], None),
        ([("Execution", None), ("PSQL", "23505")], "PSQL"),
        # A batch repeats the condition of its row.
        ([("Batch", "23505"), ("PSQL", "23505")], None),
        ([("Batch", "23505"), ("PSQL", "23502")], "PSQL"),
    ],
)
def test_the_innermost_cause_has_the_reason(
    links: list[tuple[str, str | None]], found: str | None
) -> None:
    cause = innermost(chain(*links))
    assert (None if cause is None else cause.names[0]) == found


def test_of_one_family_the_most_specific_cause_is_found() -> None:
    date = Cause(names=("java.time.DateTimeException", "java.lang.RuntimeException"))
    parse = Cause(names=("java.time.format.DateTimeParseException", *date.names))
    [wrapper] = chain(("Spark", WRAPPER))
    assert innermost([wrapper, parse]) == innermost([wrapper, parse, date]) == parse


@pytest.mark.parametrize(
    ("condition", "message", "column"),
    [
        ("23502", 'ERROR: null value in column "a b" of relation "t" violates not-null', "a b"),
        ("23502", "ERROR: my trigger refuses 'x'", None),
        # A trigger may raise it with the text of a record.
        ("23502", 'ERROR: refused: null value in column "x"', None),
        ("23505", 'ERROR: null value in column "a" of relation', None),
        (
            "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
            "NOT NULL constraint violated for column `position`",
            "position",
        ),
        (
            "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
            "[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] NOT NULL constraint violated for column: a.\n",
            "a",
        ),
        (
            "DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
            "the text is too long for the column `name` varchar(5)",
            "name",
        ),
        (
            "DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
            'Value "the text is too long for the column `x` y" exceeds char/varchar',
            None,
        ),
        (
            "NOT_NULL_ASSERT_VIOLATION",
            "NULL in the column `a`.`b c`, which is NOT NULL",
            "a.b c",
        ),
        (
            "CAST_OVERFLOW_IN_TABLE_INSERT",
            "a value out of range for the column `n`, whose type is int",
            "n",
        ),
        (
            "CAST_OVERFLOW_IN_TABLE_INSERT",
            '[CAST_OVERFLOW_IN_TABLE_INSERT] Fail to assign a value of "BIGINT" type to the "INT"'
            " type column or variable `n` due to an overflow.",
            "n",
        ),
        ("23502", f'ERROR: null value in column "{"x" * 300}" of', None),
        (None, "anything", None),
    ],
)
def test_a_column_is_named_by_its_condition(
    condition: str | None, message: str, column: str | None
) -> None:
    assert named_column(condition, message) == column


def test_a_field_is_one_of_the_schema() -> None:
    def field(name: str, value: str = "'x'") -> str | None:
        message = (
            f"[CANNOT_PARSE_JSON_FIELD] Cannot parse the field name '{name}' and the value {value}"
            ' of the JSON token type VALUE_STRING to target Spark data type "INT".'
        )
        return named_field("CANNOT_PARSE_JSON_FIELD", message, {"amount", "it's"})

    assert field("amount") == "amount"
    assert field("it's") == "it's"
    # The key of a map is data: each would be a group.
    assert field("customer-4711") is None
    assert (
        named_field("CAST_INVALID_INPUT", "field name 'amount' and the value", {"amount"}) is None
    )

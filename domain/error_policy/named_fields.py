"""The field of a record, or the column of a table, that the message of an exception names."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

_NAME: Final = r"[`'\"](.+?)[`'\"]"
#: By condition: where its message has the name of a column of a table. The patterns match no text
#: that may contain values of a record.
_COLUMNS: Final = {
    "23502": re.compile(r'ERROR: null value in column "([^"\n]+)"'),
    "NOT_NULL_ASSERT_VIOLATION": re.compile(r"NULL in the column (.+), which is NOT NULL$"),
    "CAST_OVERFLOW_IN_TABLE_INSERT": re.compile(r".* column (?:or variable )?(`.+?`)[ ,]"),
    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED": re.compile(r".*violated for column:? (.+?)\.?\s*$"),
    "DELTA_EXCEED_CHAR_VARCHAR_LIMIT": re.compile(r"the text is too long for the column (`.+`) "),
}
#: Where the message of a parser has the name of a field. It may be a name of the record's own, such
#: as the key of a map.
_FIELDS: Final = {
    "CANNOT_PARSE_JSON_FIELD": re.compile(rf"field name {_NAME} and the value"),
    # Of numbers with a fraction, before 4.0.
    "_LEGACY_ERROR_TEMP_2133": re.compile(r"field name (.+?), field value"),
    "MALFORMED_RECORD_IN_PARSING.CANNOT_PARSE_STRING_AS_DATATYPE": re.compile(
        rf" of the field {_NAME} as target"
    ),
}
#: No longer name is part of an identity.
_LONGEST: Final = 200


def named_column(condition: str | None, message: str) -> str | None:
    """Return the column that a message names; None if it names none."""
    pattern = _COLUMNS.get(condition or "")
    found = None if pattern is None else pattern.match(message)
    if found is None or len(found[1]) > _LONGEST:
        return None
    return found[1].replace("`", "")


def names_field(condition: str | None) -> bool:
    """Whether the message of a condition names a field."""
    return condition in _FIELDS


def named_field(condition: str | None, message: str, fields: Container[str]) -> str | None:
    """Return the one of the schema's `fields` that a message names; None if it names none.

    A record may contain what looks like a message, so each place that matches is read.
    """
    pattern = _FIELDS.get(condition or "")
    if pattern is None:
        return None
    found = (each[1] for each in pattern.finditer(message))
    return next((name for name in found if name in fields and len(name) <= _LONGEST), None)

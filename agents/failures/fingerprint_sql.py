"""The fingerprint of an error group as an expression of Spark, equal to the domain's function."""

from __future__ import annotations

from typing import Final

from arrester.agents.spark.frames.column_names import text_literal
from arrester.agents.spark.worker_tracebacks import MESSAGE_CHARACTERS
from arrester.domain.identity.fingerprint import (
    MESSAGE_LIMIT,
    NORMALISATIONS,
    VERSION,
    WITHOUT_CAUSE,
)

#: Let \\d and \\s match the characters that they match in Python.
_UNICODE: Final = "(?U)"


def fingerprint_sql(*, stage: str, error: str) -> str:
    """Return the fingerprint of the errors in a column; NULL without a stage or an error."""
    message = f"substring({error}.message, 1, {MESSAGE_CHARACTERS})"
    for pattern, word in NORMALISATIONS:
        expression = text_literal(_UNICODE + pattern.pattern)
        message = f"regexp_replace({message}, {expression}, {text_literal(word)})"
    message = f"substring(trim({message}), 1, {MESSAGE_LIMIT})"
    names = ("frame", "condition", "inner_class", "inner_condition", "field")
    frame, condition, *inner, field = (f"nullif({error}.{name}, '')" for name in names)
    inner_cause = f"coalesce({inner[1]}, {inner[0]})"
    where = f"coalesce({frame}, if({condition} IS NULL, {message}, ''))"
    cause = f"coalesce({condition}, {error}.exception_class)"
    has_inner = f"coalesce({inner[0]}, {field}) IS NOT NULL"
    more = [f"if({has_inner}, coalesce({part}, ''), NULL)" for part in (inner_cause, field)]
    text = f"concat_ws(chr(0), {', '.join([stage, cause, where, *more])})"
    version = f"if({has_inner}, '{VERSION}-', '{WITHOUT_CAUSE}-')"
    group = f"concat({version}, substring(sha2({text}, 256), 1, 16))"
    return f"if({stage} IS NULL OR {error}.exception_class IS NULL, NULL, {group})"

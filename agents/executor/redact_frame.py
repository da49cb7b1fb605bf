"""Redact dead letters on the executors, by the same rules as on the driver."""

from __future__ import annotations

import json
from dataclasses import dataclass

from .redactor import Redactor

#: The result type of `Redacting`.
RETURNS = "row string, message string, stack string"
Letter = tuple[str | None, str | None, str | None]


@dataclass(frozen=True, kw_only=True)
class Redacting:
    """The function for `udf`; its arguments are those of `Redactor`, and the shown column."""

    rules: tuple[str, ...]
    only: tuple[str, ...] | None
    fields: tuple[str, ...]
    key: str | None

    def __call__(self, row: str | None, message: str | None, stack: str | None) -> Letter:
        """Return the row as JSON without dropped fields, and the texts without their values."""
        if row is None:
            return None, None, None
        redactor = Redactor(self.rules, self.only, self.fields)
        kept = redactor.row(json.loads(row), self.key)
        texts = [None if text is None else redactor.hidden(text) for text in (message, stack)]
        return json.dumps(kept, ensure_ascii=False), texts[0], texts[1]

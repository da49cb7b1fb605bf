"""Dead letters without what may not leave: the same rules as the driver's, on the executors."""

from __future__ import annotations

import json
from dataclasses import dataclass

from .redactor import Redactor

#: What `Redacting` returns.
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
        """Return the row as JSON without what is dropped, and the texts without its values."""
        if row is None:
            return None, None, None
        redactor = Redactor(self.rules, self.only, self.fields)
        kept = redactor.row(json.loads(row), self.key)
        texts = [None if text is None else redactor.hidden(text) for text in (message, stack)]
        return json.dumps(kept, ensure_ascii=False), texts[0], texts[1]

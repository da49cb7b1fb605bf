"""What a JSON Patch changes in a record, column by column."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from arrester.domain import json_patch
from arrester.domain.visible_text import visible

_encoder = msgspec.json.Encoder(decimal_format="number")


class Change(NamedTuple):
    """A column before and after; None: the record has no such column."""

    column: str
    before: str | None
    after: str | None


def changes(before: str, after: str) -> list[Change]:
    """Return the columns in which two records differ; both are JSON objects."""
    first, second = json_patch.loads(before), json_patch.loads(after)
    names = [*first, *(name for name in second if name not in first)]
    both = ((name, _shown(first, name), _shown(second, name)) for name in names)
    return [Change(*each) for each in both if each[1] != each[2]]


def _shown(record: dict[str, object], name: str) -> str | None:
    if name not in record:
        return None
    return visible(msgspec.json.format(_encoder.encode(record[name]), indent=2).decode())

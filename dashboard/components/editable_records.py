"""The record of a dead letter as JSON to edit, from its file or topic."""

from __future__ import annotations

from typing import NamedTuple

from arrester.controlplane import dead_letter_records, queries
from arrester.dashboard.text import record_text


class Editable(NamedTuple):
    """A record as JSON; without text, it is read at the moment or cannot be read."""

    text: str = ""
    pending: bool = False
    #: Why it cannot be read.
    reason: str = ""
    #: The paths of masked fields, which the text does not have.
    masked: tuple[str, ...] = ()

    def partly_masked(self, columns: list[str]) -> list[str]:
        """Return those of the columns that have a masked field: a new value would remove it."""
        return [
            name for name in columns if any(each.startswith(f"{name}.") for each in self.masked)
        ]


def editable(one: queries.DeadLetter) -> Editable:
    """Return the record of a dead letter; a worker reads it on the first call."""
    record = dead_letter_records.request(one)
    if record.state is dead_letter_records.State.PENDING:
        return Editable(pending=True)
    body = record.body
    if body is None or body.record is None:
        return Editable(reason=record.reason or "It has no record.")
    if body.cut_from:
        return Editable(reason=f"It has {body.cut_from:,} bytes, too many for this page.")
    return Editable(text=record_text.pretty(body.record), masked=body.redacted)

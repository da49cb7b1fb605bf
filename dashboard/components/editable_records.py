"""A record as JSON to edit: of a dead letter from its file or topic, or of a failure."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from arrester.controlplane import dead_letter_records, queries
from arrester.dashboard.text import record_text
from arrester.domain.errors import InvalidValue
from arrester.domain.events import Body, StoredEvent
from arrester.domain.json_patch import difference


class Reviewed(NamedTuple):
    """The JSON Patch of an edited record, or why there is none."""

    patch: str = ""
    invalid: str = ""


class Editable(NamedTuple):
    """A record as JSON; without text, it is read at the moment or cannot be read."""

    text: str = ""
    pending: bool = False
    #: Why it cannot be read.
    reason: str = ""
    #: The paths of masked fields, which the text does not have.
    masked: tuple[str, ...] = ()
    #: The columns of which it has the beginning only.
    cut: tuple[str, ...] = ()

    @property
    def refusal(self) -> str:
        """Why it cannot be edited, as a part of a sentence; empty: it can, or it is being read."""
        if self.text or self.pending:
            return ""
        return f"{self.reason[:1].lower()}{self.reason[1:].rstrip('.')}"

    def incomplete(self, columns: Collection[str]) -> list[str]:
        """Return those of the columns that are cut or have a masked field: a new value would lose
        the rest."""
        return [name for name in sorted(columns) if name in self.cut or self._is_masked(name)]

    def review(self, text: str) -> Reviewed:
        """Return the patch that turns the record into the edited text."""
        if not self.text:
            missing = "The record is read once more: review the changes in a few seconds."
            return Reviewed(invalid=self.reason or missing)
        try:
            patch = difference(self.text, text)
        except InvalidValue as error:
            return Reviewed(invalid=f"{error}.")
        if patch is None:
            return Reviewed(invalid="No column is changed.")
        if lost := self.incomplete(patch.columns):
            names = ", ".join(lost)
            whole = f"{names}: the page does not have the whole value. Change other columns."
            return Reviewed(invalid=whole)
        return Reviewed(patch=patch.text)

    def _is_masked(self, column: str) -> bool:
        """Whether a part of a column is masked; of many masked fields only the first are named."""
        return any(
            f"{path}.".startswith(f"{column}.") or path.startswith("…[") for path in self.masked
        )


def editable(one: queries.DeadLetter) -> Editable:
    """Return the record of a dead letter: that of the log, which its page shows.

    If the log does not have the whole record, a worker reads it on the first call.
    """
    logged = of_failure(queries.failure_of_dead_letter(one))
    if logged.text and not logged.cut:
        return logged
    record = dead_letter_records.request(one)
    if record.state is dead_letter_records.State.PENDING:
        return Editable(pending=True)
    if record.body is not None and record.body.record is not None:
        return _of_body(record.body)
    return logged if logged.text else Editable(reason=record.reason or "It has no record.")


def of_failure(stored: StoredEvent | None) -> Editable:
    """Return the record of a failure, as the agent has reported it."""
    body = stored.event.body if stored else None
    if body is None or body.record is None:
        return Editable(reason=(body and body.unreadable) or "The log does not have the record.")
    return _of_body(body)


def _of_body(body: Body) -> Editable:
    if body.cut_from:
        return Editable(reason=f"It has {body.cut_from:,} bytes, too many for this page.")
    record = body.record or {}
    cut = tuple(name for name, value in record.items() if record_text.is_cut(value))
    return Editable(text=record_text.pretty(record), masked=body.redacted, cut=cut)

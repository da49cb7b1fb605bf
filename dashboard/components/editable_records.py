"""A record as JSON to edit: of a dead letter from its file or topic, or of a failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jsonpointer

from arrester.controlplane import dead_letter_records, queries
from arrester.dashboard.text import record_text
from arrester.dashboard.text.record_fields import (
    InvalidFields,
    RecordFields,
    edited,
    is_of,
    record_fields,
)
from arrester.domain import json_patch
from arrester.domain.errors import InvalidValue
from arrester.domain.events import Body, StoredEvent
from arrester.domain.json_patch import JsonPatch, difference


class Reviewed(NamedTuple):
    """The JSON Patch of an edited record, or why there is none."""

    patch: str = ""
    invalid: str = ""
    #: The fields with the typed values, if some are not valid.
    editor: RecordFields | None = None


class Editable(NamedTuple):
    """A record as JSON; without text, it is read at the moment or cannot be read."""

    text: str = ""
    pending: bool = False
    #: Why it cannot be read.
    reason: str = ""
    #: The paths of masked fields, which the text does not have.
    masked: tuple[str, ...] = ()

    @property
    def refusal(self) -> str:
        """Why it cannot be edited, as a part of a sentence; empty: it can, or it is being read."""
        if self.text or self.pending:
            return ""
        return f"{self.reason[:1].lower()}{self.reason[1:].rstrip('.')}"

    @property
    def is_cut(self) -> bool:
        """Whether the text has only the beginning of a value."""
        return bool(self.text) and record_text.is_cut(json_patch.loads(self.text))

    @property
    def editor(self) -> RecordFields | None:
        """Its fields; None if it is edited as JSON only."""
        return record_fields(self.text) if self.text else None

    def incomplete(self, patch: JsonPatch) -> list[str]:
        """Return the changed places of which the text does not have the whole value: it is cut, or
        has a masked field. A new value would lose the rest."""
        record = json_patch.loads(self.text)
        return [path for path in patch.paths if self._is_incomplete(record, path)]

    def review(self, form: Mapping[str, str]) -> Reviewed:
        """Return the patch that turns the record into that of a form: its fields, or its text."""
        if not self.text:
            missing = "The record is read once more: review the changes in a few seconds."
            return Reviewed(invalid=self.reason or missing)
        text = form.get("text", "")
        if "digest" in form:
            if not is_of(self.text, form):
                changed = "The record was read once more, and has other values: edit it again."
                return Reviewed(invalid=changed)
            try:
                text = edited(self.text, form)
            except InvalidFields as error:
                editor = RecordFields(error.fields, form["digest"])
                return Reviewed(invalid="Some values are not allowed.", editor=editor)
        return self._review(text)

    def _review(self, text: str) -> Reviewed:
        try:
            patch = difference(self.text, text)
        except InvalidValue as error:
            return Reviewed(invalid=f"{error}.")
        if patch is None:
            return Reviewed(invalid="No column is changed.")
        if lost := self.incomplete(patch):
            names = ", ".join(each.removeprefix("/") for each in lost)
            whole = f"{names}: the page does not have the whole value. Change other columns."
            return Reviewed(invalid=whole)
        return Reviewed(patch=patch.text)

    def _is_incomplete(self, record: object, path: str) -> bool:
        value = jsonpointer.resolve_pointer(record, path)
        if record_text.is_cut(value):
            return True
        # A text can have masked fields too. Masked paths name no elements of arrays.
        names = [each for each in jsonpointer.JsonPointer(path).parts if not each.isdecimal()]
        own = ".".join(names)
        is_open = isinstance(value, dict | list | str)
        return is_open and any(
            f"{each}.".startswith(f"{own}.")
            or (each.startswith("…[") and not isinstance(value, str))
            for each in self.masked
        )


def editable(one: queries.DeadLetter) -> Editable:
    """Return the record of a dead letter: that of the log, which its page shows.

    If the log does not have the whole record, a worker reads it on the first call.
    """
    logged = of_failure(queries.failure_of_dead_letter(one))
    if logged.text and not logged.is_cut:
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
    return Editable(text=record_text.pretty(record), masked=body.redacted)

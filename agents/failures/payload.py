"""What is shown of a failed record: the source row as JSON, redacted and limited in size."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import Row

from arrester.agents.executor.redactor import Redactor
from arrester.controlplane.domain.events import Body

#: A longer record, in bytes, is cut, and the body says so.
RECORD_BYTES = 16 * 1024
_CUT_MARK = "…[cut]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """The rules for what may leave the driver of a record.

    A field is dropped if its name contains one of the names in `drop` (case-insensitive, at any
    depth, also inside JSON texts), or if it is at a path in `drop` (`$.card.number`). A text that
    begins as JSON, is unreadable and names such a field is not shown at all. With `only`, a field
    leaves only if its name, its path or the path of a parent is listed. `usual` drops as `drop`
    does, except `key`: the top-level column that the author declared as the record's key.
    `key_names` are the names in the key's expression. Names in maps and JSON are data: above an
    allowed field they are hidden, unless they are in `fields`.
    """

    drop: Sequence[str] = ()
    usual: Sequence[str] = ()
    only: Sequence[str] | None = None
    key: str | None = None
    key_names: Sequence[str] = ()
    #: The source's field names at any depth. Any other name below a column is data.
    fields: Collection[str] = ()

    def body(self, row: Mapping[str, Any], *, stack: str | None) -> Body:
        """Return the body of a failed record. Its stack does not contain values of dropped
        fields."""
        redactor, kept = self._redacted(row)
        record, size = _cut(_sound(kept))
        return Body(
            record=record,
            redacted=tuple(_sound(redactor.told)),
            cut_from=size,
            stack=_sound(None if stack is None else redactor.hidden(stack)),
        )

    def kept(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the allowed parts of a row's fields as JSON."""
        return self._redacted(row)[1]

    def texts(self, row: Mapping[str, Any], *texts: str | None) -> list[str | None]:
        """Return texts about a record without the values of its dropped fields.

        Exact values are found; parts of values, derived values and values of fewer than four
        characters are not.
        """
        redactor, _ = self._redacted(row)
        return [None if text is None else redactor.hidden(text) for text in texts]

    @property
    def rules(self) -> tuple[str, ...]:
        """All dropping rules."""
        return (*self.drop, *self.usual)

    @property
    def shown_key(self) -> str | None:
        """The column that stays regardless of its name, if any."""
        return self.key if self.key is not None and self.shows_key else None

    @property
    def shows_key(self) -> bool:
        """Whether the record's key leaves the driver: no rule in `drop` names a part of it."""
        given = Redactor(self.drop, self.only)
        if self.only is not None and not (self.key is not None and given.names(self.key)):
            return False
        return not any(given.forbids(name) for name in (self.key or "", *self.key_names))

    def _redacted(self, row: Mapping[str, Any]) -> tuple[Redactor, dict[str, Any]]:
        redactor = Redactor(self.rules, self.only, self.fields)
        kept = redactor.row({name: jsonable(row[name]) for name in row}, self.shown_key)
        return redactor, kept


def jsonable(value: Any) -> Any:
    """Return `value` for JSON: times as ISO 8601; decimals, NaN and bytes as text.

    Bytes that are not UTF-8 become `base64:…`.
    """
    if isinstance(value, Row):
        return {name: jsonable(item) for name, item in value.asDict().items()}
    if isinstance(value, Mapping):
        return {str(jsonable(key)): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return "base64:" + base64.b64encode(bytes(value)).decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if value is None or isinstance(value, str | bool | int):
        return value
    return str(value) if isinstance(value, Decimal) else repr(value)


def _sound(value: Any) -> Any:
    """Return JSON whose texts can be written as UTF-8: an unpaired surrogate becomes `?`."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_sound(name): _sound(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_sound(item) for item in value]
    return value


def _cut(record: dict[str, Any]) -> tuple[dict[str, Any], int | None]:
    """Return the record within the size limit, and its original size if it was cut."""
    size = _size(record)
    if size <= RECORD_BYTES:
        return record, None
    share = max(64, RECORD_BYTES // (2 * max(1, len(record))))
    cut: dict[str, Any] = {}
    for name, value in record.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        whole = _size(value) <= share
        shortened = text.encode()[:share].decode(errors="ignore") + _CUT_MARK
        # With thousands of columns even the names must be limited.
        if _size(cut) + share + len(name) > RECORD_BYTES:
            cut["…"] = f"{len(record) - len(cut)} more fields"
            break
        cut[name] = value if whole else shortened
    return cut, size


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode(errors="replace"))

"""What is shown of a failed record: the source row as JSON, no secrets, bounded in size."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import Row

from controlplane.domain.events import Body

#: A body's record above this size in bytes is cut, and says so.
RECORD_BYTES = 16 * 1024
_CUT_MARK = "…[cut]"
_NOT_SHOWN = "…[not shown: unreadable JSON that names a redacted field]"
#: How a text that is JSON begins; a byte order mark may come first.
_JSON = re.compile(r"[\s\ufeff]*[{\[]")
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")


def body(
    row: Mapping[str, Any], *, stack: str | None, redact: Sequence[str], shown: str | None
) -> Body:
    """Return the body of a failed record.

    Dropped are fields whose name contains, in any case, one of the names in `redact`, at any
    depth and inside texts that are JSON, and fields at a path in it (`$.card.number`). A text that
    begins as JSON, cannot be read and names such a field is not shown at all. `shown` is the
    top-level column that the author declared as the record's key: it stays.
    """
    redactor = _Redactor(redact)
    kept: dict[str, Any] = {}
    for name, value in row.items():
        if name == shown or not redactor.drops(name, name):
            kept[name] = redactor.clean(jsonable(value), name)
    record, size = _cut(_sound(kept))
    return Body(
        record=record,
        redacted=tuple(_sound(redactor.dropped)),
        cut_from=size,
        stack=_sound(stack),
    )


def jsonable(value: Any) -> Any:
    """Return `value` as JSON has it: times as ISO 8601, decimals and NaN as text, bytes as text.

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
    """Return JSON whose texts can be written as UTF-8: half a surrogate pair becomes `?`."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_sound(name): _sound(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_sound(item) for item in value]
    return value


class _Redactor:
    """Drops what may not leave the driver and remembers the paths, never the values."""

    def __init__(self, rules: Sequence[str]) -> None:
        self._paths = {rule.removeprefix("$.").lower() for rule in rules if "." in rule}
        self._names = [rule.lower() for rule in rules if "." not in rule]
        #: What a text may not contain that is JSON for others and unreadable for us.
        self._words = [*self._names, *(path.rpartition(".")[2] for path in self._paths)]
        self.dropped: list[str] = []

    def drops(self, name: str, path: str) -> bool:
        low = name.lower()
        if path.lower() not in self._paths and not any(part in low for part in self._names):
            return False
        self.dropped.append(path)
        return True

    def clean(self, value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {
                name: self.clean(item, f"{path}.{name}")
                for name, item in value.items()
                if not self.drops(name, f"{path}.{name}")
            }
        if isinstance(value, list):
            return [self.clean(item, path) for item in value]
        if isinstance(value, str) and _JSON.match(value):
            return self._clean_text(value, path)
        return value

    def _clean_text(self, text: str, path: str) -> str:
        before = len(self.dropped)
        try:
            cleaned = self.clean(json.loads(text, object_pairs_hook=_once), path)
            unchanged = len(self.dropped) == before
            return text if unchanged else json.dumps(cleaned, ensure_ascii=False)
        except (ValueError, RecursionError):
            del self.dropped[before:]
        low = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text).lower()
        if not any(word in low for word in self._words):
            return text
        self.dropped.append(path)
        return _NOT_SHOWN


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a name that is there twice: its first value would be seen by readers only."""
    named = dict(pairs)
    if len(named) < len(pairs):
        raise ValueError("a name is there twice")
    return named


def _cut(record: dict[str, Any]) -> tuple[dict[str, Any], int | None]:
    """Return the record within its bound, and its size before where it had to be cut."""
    size = _size(record)
    if size <= RECORD_BYTES:
        return record, None
    share = max(64, RECORD_BYTES // (2 * max(1, len(record))))
    cut: dict[str, Any] = {}
    for name, value in record.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        whole = _size(value) <= share
        shortened = text.encode()[:share].decode(errors="ignore") + _CUT_MARK
        # A row of thousands of columns: even the names must end somewhere.
        if _size(cut) + share + len(name) > RECORD_BYTES:
            cut["…"] = f"{len(record) - len(cut)} more fields"
            break
        cut[name] = value if whole else shortened
    return cut, size


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode(errors="replace"))

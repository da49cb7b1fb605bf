"""Drop fields of a record by names and paths, and remove their values from texts.

Driver and executors redact by the same rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_NOT_SHOWN = "…[not shown: unreadable JSON that names a redacted field]"
_HIDDEN = "…[redacted]"
#: A shorter value occurs in too many unrelated texts.
_FOUND_CHARACTERS = 4
#: How a JSON text begins: perhaps after a byte order mark, and with quotes if it was encoded more
#: than once.
_JSON = re.compile(r"[\s\ufeff]*(?:\\*\"\s*)*[{\[]")
_QUOTED = re.compile(r"[\s\ufeff]*\"")
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
#: Paths reported per record, and characters of each: names may be data.
PATHS, PATH_CHARACTERS = 100, 200
_CUT = "…[cut]"
#: In place of a dropped value.
_DROPPED: Any = object()
#: The result type of `RedactRow`.
REDACTED = "row string, message string, stack string"


class Redactor:
    """Drop what must not leave the driver from one record; remember paths, and values for texts.

    Values are JSON already. `rules` drop; if `only` is given, everything else is dropped too.
    `fields` are the names below columns with a schema, which are not data.
    """

    def __init__(
        self,
        rules: Sequence[str],
        only: Sequence[str] | None = None,
        fields: Collection[str] = (),
    ) -> None:
        self._paths = _paths(rules)
        self._names = [rule.lower() for rule in rules if "." not in rule]
        #: Words that a text must not contain if it is JSON for others and unreadable here.
        self._words = [*self._names, *(path.rpartition(".")[2] for path in self._paths)]
        self._only = only is not None
        self._only_paths = _paths(only or ())
        self._fields = frozenset(fields)
        self._only_names = {rule.lower() for rule in only or () if "." not in rule}
        self._dropped: list[str] = []
        #: The columns of dropped values, in order.
        self._columns: dict[str, None] = {}
        self._column = ""
        self._values: set[str] = set()

    def row(self, row: dict[str, Any], key: str | None) -> dict[str, Any]:
        """Return the redacted row; its column `key` is kept under any name."""
        kept: dict[str, Any] = {}
        for name, value in row.items():
            self._column = name
            if name != key and self._drops(name, name, value):
                continue
            cleaned = self._clean(value, name, allowed=not self._only or self._allows(name))
            if cleaned is not _DROPPED:
                kept[name] = cleaned
        return kept

    @property
    def dropped_paths(self) -> list[str]:
        """The paths of dropped values, bounded in number and length; the last one says so.

        If `only` is given these are columns: names below a column may be data.
        """
        paths = list(self._columns) if self._only else self._dropped
        some = [_shortened(path) for path in paths[:PATHS]]
        return [*some, f"…[{len(paths) - PATHS} more]"] if len(paths) > PATHS else some

    def names(self, name: str) -> bool:
        """Whether `only` names a column."""
        return name.lower() in self._only_names | self._only_paths

    def forbids(self, name: str) -> bool:
        """Whether a rule names this field, at any depth."""
        low = name.lower()
        ends = (path.rpartition(".")[2] for path in self._paths)
        return any(part in low for part in self._names) or low in ends

    def redact_text(self, text: str) -> str:
        """Return a text without the dropped values that occur in it unchanged."""
        for value in sorted(self._values, key=len, reverse=True):
            text = text.replace(value, _HIDDEN)
        return text

    def _drops(self, name: str, path: str, value: Any) -> bool:
        low = name.lower()
        if path.lower() not in self._paths and not any(part in low for part in self._names):
            return False
        self._drop(path, value)
        return True

    def _drop(self, path: str, value: Any) -> None:
        self._dropped.append(path)
        self._columns[self._column] = None
        self._values.update(_leaves(value))

    def _allows(self, path: str) -> bool:
        low = path.lower()
        named = low.rpartition(".")[2] in self._only_names
        return named or any(low == each or low.startswith(f"{each}.") for each in self._only_paths)

    def _clean(self, value: Any, path: str, *, allowed: bool) -> Any:
        """Return the redacted value, _DROPPED if nothing of it is kept."""
        if isinstance(value, dict):
            return self._object(value, path, allowed=allowed)
        if isinstance(value, list):
            items = [self._clean(item, path, allowed=allowed) for item in value]
            kept = [item for item in items if item is not _DROPPED]
            return kept if kept or allowed else _DROPPED
        if isinstance(value, str) and (_JSON.match(value) or _QUOTED.match(value)):
            return self._text(value, path, allowed=allowed)
        if not allowed:
            self._drop(path, value)
            return _DROPPED
        return value

    def _object(self, value: dict[str, Any], path: str, *, allowed: bool) -> Any:
        kept: dict[str, Any] = {}
        for name, item in value.items():
            inner = f"{path}.{name}"
            if self._drops(name, inner, item):
                continue
            inside = allowed or self._allows(inner)
            cleaned = self._clean(item, inner, allowed=inside)
            if cleaned is not _DROPPED:
                shown = inside or name in self._fields or self._leads(inner)
                kept[name if shown else self._unnamed(inner, kept)] = cleaned
        return kept if kept or allowed else _DROPPED

    def _unnamed(self, path: str, kept: dict[str, Any]) -> str:
        """Return the placeholder of a name that is data: of a map's entry, or in JSON."""
        self._drop(path, None)
        return f"…[name {len(kept) + 1}]"

    def _leads(self, path: str) -> bool:
        """Whether `only` names something below a path, and so the path itself."""
        above = f"{path.lower()}."
        return any(each.startswith(above) for each in self._only_paths)

    def _text(self, text: str, path: str, *, allowed: bool) -> Any:
        before, columns = len(self._dropped), dict(self._columns)
        try:
            cleaned = self._clean(
                json.loads(text, object_pairs_hook=_refuse_duplicates), path, allowed=allowed
            )
            unchanged = len(self._dropped) == before
            if cleaned is _DROPPED or unchanged:
                return cleaned if cleaned is _DROPPED else text
            return json.dumps(cleaned, ensure_ascii=False)
        except (ValueError, RecursionError):
            del self._dropped[before:]
            self._columns = columns
        low = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text).lower()
        # A quote alone also begins a line of CSV.
        named = _JSON.match(text) is not None and any(word in low for word in self._words)
        if allowed and not named:
            return text
        self._drop(path, text)
        return _NOT_SHOWN if allowed else _DROPPED


@dataclass(frozen=True, kw_only=True)
class RedactRow:
    """The function for `udf`; its arguments are those of `Redactor`, and the shown column."""

    rules: tuple[str, ...]
    only: tuple[str, ...] | None
    fields: tuple[str, ...]
    key: str | None

    def __call__(
        self, row: str | None, message: str | None, stack: str | None
    ) -> tuple[str | None, str | None, str | None]:
        """Return the row as JSON without dropped fields, and the texts without their values."""
        if row is None:
            return None, None, None
        redactor = Redactor(self.rules, self.only, self.fields)
        kept = redactor.row(json.loads(row), self.key)
        texts = [None if text is None else redactor.redact_text(text) for text in (message, stack)]
        return json.dumps(kept, ensure_ascii=False), texts[0], texts[1]


def _paths(rules: Sequence[str]) -> set[str]:
    return {rule.removeprefix("$.").lower() for rule in rules if "." in rule}


def _shortened(path: str) -> str:
    return path if len(path) <= PATH_CHARACTERS else path[:PATH_CHARACTERS] + _CUT


def _leaves(value: Any) -> Iterator[str]:
    """Yield the texts of a value that are long enough to be searched for."""
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif not isinstance(value, bool | None) and len(str(value)) >= _FOUND_CHARACTERS:
        yield str(value)


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a duplicate name: only readers would see its first value."""
    named = dict(pairs)
    if len(named) < len(pairs):
        raise ValueError("a name is there twice")
    return named

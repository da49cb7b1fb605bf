"""Drop fields of a record by names and paths, and hide their values in texts.

Driver and executors redact by the same rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from .text_redaction import FOUND_CHARACTERS, hide_values

_NOT_SHOWN = "…[not shown: unreadable JSON that names a redacted field]"
#: The beginning of a JSON text. It may follow a byte order mark, and quotes if the text was encoded
#: more than once.
_JSON = re.compile(r"[\s\ufeff]*(?:\\*\"\s*)*[{\[]")
_QUOTED = re.compile(r"[\s\ufeff]*\"")
#: The wildcards in a rule, which make it a pattern of a whole name.
_WILDCARD = re.compile(r"[*?]")
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
#: Paths reported per record, and characters of each: names may be data.
PATHS, PATH_CHARACTERS = 100, 200
_CUT = "…[cut]"
#: In place of a dropped value.
_DROPPED: Any = object()
#: The result type of `RedactRow`.
REDACTED = "row string, message string, stack string"


class Redactor:
    """Drop redacted fields from one record; keep their paths, and their values to hide in texts.

    Values of a record are JSON values. `rules` name dropped fields. If `only` is given, all fields
    that it does not name are dropped too. `fields` are the names below columns with a schema; other
    names may be data.
    """

    def __init__(
        self,
        rules: Sequence[str],
        only: Sequence[str] | None = None,
        fields: Collection[str] = (),
    ) -> None:
        self._paths = _paths(rules)
        names = [rule.lower() for rule in rules if "." not in rule]
        self._names = [name for name in names if not _WILDCARD.search(name)]
        self._pattern = _pattern(name for name in names if _WILDCARD.search(name))
        #: JSON that cannot be parsed is not shown if it contains one of these words.
        self._words = [max(_WILDCARD.split(name), key=len) for name in names]
        self._words += [path.rpartition(".")[2] for path in self._paths]
        self._only = only is not None
        self._only_paths = _paths(only or ())
        self._fields = frozenset(fields)
        self._only_names = _pattern(rule.lower() for rule in only or () if "." not in rule)
        #: The paths of dropped values, and the values.
        self.dropped: list[tuple[str, Any]] = []
        #: The columns of dropped values, as an ordered set.
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
            redacted = self._redact(value, name, allowed=not self._only or self._allows(name, name))
            if redacted is not _DROPPED:
                kept[name] = redacted
        return kept

    @property
    def dropped_paths(self) -> list[str]:
        """The paths of dropped values, bounded in number and length; the last counts the rest.

        If `only` is given, these are columns: names below a column may be data.
        """
        paths = list(self._columns) if self._only else [path for path, _ in self.dropped]
        shown = [_shortened(path) for path in paths[:PATHS]]
        return [*shown, f"…[{len(paths) - PATHS} more]"] if len(paths) > PATHS else shown

    @property
    def columns(self) -> frozenset[str]:
        """The columns that had dropped values."""
        return frozenset(self._columns)

    def names(self, name: str) -> bool:
        """Whether `only` names a column."""
        lower = name.lower()
        return lower in self._only_paths or self._only_names.fullmatch(lower) is not None

    def forbids(self, name: str) -> bool:
        """Whether a rule names this field, at any depth."""
        lower = name.lower()
        last_parts = (path.rpartition(".")[2] for path in self._paths)
        return self._is_named(lower) or lower in last_parts or lower in self._paths

    def _is_named(self, lower: str) -> bool:
        """Whether a rule that is a name or a pattern drops a field, whose name is in lower case."""
        return any(part in lower for part in self._names) or bool(self._pattern.fullmatch(lower))

    def redact_text(self, text: str) -> str:
        """Return a text without the dropped values that occur in it, plain or escaped."""
        return hide_values(text, self._values)

    def _drops(self, name: str, path: str, value: Any) -> bool:
        if path.lower() not in self._paths and not self._is_named(name.lower()):
            return False
        self._drop(path, value)
        return True

    def _drop(self, path: str, value: Any) -> None:
        self.dropped.append((path, value))
        self._columns[self._column] = None
        self._values.update(_leaves(value))

    def _allows(self, name: str, path: str) -> bool:
        """Whether `only` names a field, or one that it is in."""
        if self._only_names.fullmatch(name.lower()) is not None:
            return True
        lower = path.lower()
        return any(lower == only or lower.startswith(f"{only}.") for only in self._only_paths)

    def _redact(self, value: Any, path: str, *, allowed: bool) -> Any:
        """Return the redacted value, _DROPPED if nothing of it is kept."""
        if isinstance(value, dict):
            return self._redact_object(value, path, allowed=allowed)
        if isinstance(value, list):
            items = [self._redact(item, path, allowed=allowed) for item in value]
            kept = [item for item in items if item is not _DROPPED]
            return kept if kept or allowed else _DROPPED
        if isinstance(value, str) and (_JSON.match(value) or _QUOTED.match(value)):
            return self._redact_json(value, path, allowed=allowed)
        if not allowed:
            self._drop(path, value)
            return _DROPPED
        return value

    def _redact_object(self, value: dict[str, Any], path: str, *, allowed: bool) -> Any:
        kept: dict[str, Any] = {}
        for name, item in value.items():
            item_path = f"{path}.{name}"
            if self._drops(name, item_path, item):
                continue
            is_allowed = allowed or self._allows(name, item_path)
            redacted = self._redact(item, item_path, allowed=is_allowed)
            if redacted is not _DROPPED:
                shown = is_allowed or name in self._fields or self._is_above_allowed(item_path)
                kept[name if shown else self._placeholder(name, item_path, kept)] = redacted
        return kept if kept or allowed else _DROPPED

    def _placeholder(self, name: str, path: str, kept: dict[str, Any]) -> str:
        """Drop a name that may be data, of a map's entry or in JSON; return its placeholder."""
        self._drop(path, name)
        return f"…[name {len(kept) + 1}]"

    def _is_above_allowed(self, path: str) -> bool:
        """Whether `only` names a field below a path, and so the path itself."""
        prefix = f"{path.lower()}."
        return any(only.startswith(prefix) for only in self._only_paths)

    def _redact_json(self, text: str, path: str, *, allowed: bool) -> Any:
        """Return a text that may be JSON without redacted fields, _DROPPED if nothing is kept."""
        before, columns = len(self.dropped), dict(self._columns)
        try:
            redacted = self._redact(
                json.loads(text, object_pairs_hook=_refuse_duplicates), path, allowed=allowed
            )
            if redacted is _DROPPED:
                return _DROPPED
            is_unchanged = len(self.dropped) == before
            return text if is_unchanged else json.dumps(redacted, ensure_ascii=False)
        except (ValueError, RecursionError):
            del self.dropped[before:]
            self._columns = columns
        lower = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), text).lower()
        # A quote alone also begins a line of CSV.
        may_show = _JSON.match(text) is not None and any(word in lower for word in self._words)
        if allowed and not may_show:
            return text
        self._drop(path, text)
        return _NOT_SHOWN if allowed else _DROPPED


@dataclass(frozen=True, kw_only=True)
class RedactRow:
    """The function for `udf`. Its fields are the arguments of `Redactor`, and the shown column."""

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


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Return an expression for names in which `*` is any text and `?` any character."""
    globs = [re.escape(name).replace(r"\*", ".*").replace(r"\?", ".") for name in names]
    # Without names, it matches nothing.
    return re.compile("|".join(globs) or r"(?!)", re.DOTALL)


def _leaves(value: Any) -> Iterator[str]:
    """Yield the texts of a value that are long enough to be searched for.

    For a text that is JSON, these include the values inside: messages of a step quote them.
    """
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif not isinstance(value, bool | None) and len(str(value)) >= FOUND_CHARACTERS:
        yield str(value)
        if isinstance(value, str) and (_JSON.match(value) or _QUOTED.match(value)):
            with suppress(ValueError, RecursionError):
                yield from _leaves(json.loads(value))


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a duplicate name: the redaction would not see its first value, and readers would."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a name is there twice")
    return fields

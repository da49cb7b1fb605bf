"""Drop fields of a record by names and paths, and remove their values from texts.

Driver and executors redact by the same rules.
"""

from __future__ import annotations

import json
import re
import sys
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
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
#: The wildcards of a rule that is a pattern of a whole name.
_WILDCARD = re.compile(r"[*?]")
#: A text this long may have been cut, within a value too.
_CUT_TEXT_CHARACTERS = 4_000
#: An escape of JSON or `repr`, with any number of backslashes.
_ESCAPED = re.compile(
    r"\\+(u[dD][89abAB]..\\+u[dD][c-fC-F]..|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|[bfnrt]|)"
)
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
#: At most this many characters are left of an escape that was cut.
_CUT_ESCAPE_CHARACTERS = 8
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
        names = [rule.lower() for rule in rules if "." not in rule]
        self._names = [name for name in names if not _WILDCARD.search(name)]
        self._pattern = _pattern(name for name in names if _WILDCARD.search(name))
        #: Words that a text must not contain if it is JSON for others and unreadable here.
        self._words = [max(_WILDCARD.split(name), key=len) for name in names]
        self._words += [path.rpartition(".")[2] for path in self._paths]
        self._only = only is not None
        self._only_paths = _paths(only or ())
        self._fields = frozenset(fields)
        self._only_names = _pattern(rule.lower() for rule in only or () if "." not in rule)
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
            cleaned = self._clean(value, name, allowed=not self._only or self._allows(name, name))
            if cleaned is not _DROPPED:
                kept[name] = cleaned
        return kept

    @property
    def dropped_paths(self) -> list[str]:
        """The paths of dropped values, bounded in number and length; the last counts the rest.

        If `only` is given these are columns: names below a column may be data.
        """
        paths = list(self._columns) if self._only else self._dropped
        some = [_shortened(path) for path in paths[:PATHS]]
        return [*some, f"…[{len(paths) - PATHS} more]"] if len(paths) > PATHS else some

    def names(self, name: str) -> bool:
        """Whether `only` names a column."""
        low = name.lower()
        return low in self._only_paths or self._only_names.fullmatch(low) is not None

    def forbids(self, name: str) -> bool:
        """Whether a rule names this field, at any depth."""
        low = name.lower()
        ends = (path.rpartition(".")[2] for path in self._paths)
        return self._is_named(low) or low in ends or low in self._paths

    def _is_named(self, low: str) -> bool:
        """Whether a rule that is a name or a pattern drops a field, whose name is in lower case."""
        return any(part in low for part in self._names) or bool(self._pattern.fullmatch(low))

    def redact_text(self, text: str) -> str:
        """Return a text without the dropped values that occur in it, plain or escaped.

        Values may overlap: each character of one of them is hidden.
        """
        found = [span for value in self._values for span in _occurrences(text, value)]
        unescaped, may_be_cut = _Unescaped(text), len(text) >= _CUT_TEXT_CHARACTERS
        values = {_Unescaped(value).text for value in self._values}
        for value in (each for each in values if len(each) >= _FOUND_CHARACTERS):
            places = [*_occurrences(unescaped.text, value)]
            places += _at_the_ends(unescaped.text, value) if may_be_cut else ()
            found += [unescaped.original(*place) for place in places]
        kept, end = [], 0
        for start, stop in sorted(found):
            if start >= end:
                kept += [text[end:start], _HIDDEN]
            end = max(end, stop)
        return "".join([*kept, text[end:]])

    def _drops(self, name: str, path: str, value: Any) -> bool:
        if path.lower() not in self._paths and not self._is_named(name.lower()):
            return False
        self._drop(path, value)
        return True

    def _drop(self, path: str, value: Any) -> None:
        self._dropped.append(path)
        self._columns[self._column] = None
        self._values.update(_leaves(value))

    def _allows(self, name: str, path: str) -> bool:
        low = path.lower()
        named = self._only_names.fullmatch(name.lower()) is not None
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
            inside = allowed or self._allows(name, inner)
            cleaned = self._clean(item, inner, allowed=inside)
            if cleaned is not _DROPPED:
                shown = inside or name in self._fields or self._leads(inner)
                kept[name if shown else self._unnamed(name, inner, kept)] = cleaned
        return kept if kept or allowed else _DROPPED

    def _unnamed(self, name: str, path: str, kept: dict[str, Any]) -> str:
        """Return the placeholder of a name that is data: of a map's entry, or in JSON."""
        self._drop(path, name)
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


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Return an expression for names in which `*` is any text and `?` any character."""
    globs = [re.escape(name).replace(r"\*", ".*").replace(r"\?", ".") for name in names]
    # Without names, it matches nothing.
    return re.compile("|".join(globs) or r"(?!)", re.DOTALL)


def _occurrences(text: str, value: str) -> Iterator[tuple[int, int]]:
    """Yield the places of a value in a text, overlapping ones too."""
    start = text.find(value)
    while start >= 0:
        yield start, start + len(value)
        start = text.find(value, start + 1)


def _at_the_ends(text: str, value: str) -> Iterator[tuple[int, int]]:
    """Yield the places of a value that was cut with the text: its end first, its beginning last.

    An escape may be cut too.
    """
    begins = range(_CUT_ESCAPE_CHARACTERS + 1)
    ends = [len(text) - left for left in begins]
    for size in range(min(len(value), len(text)) - 1, _FOUND_CHARACTERS - 1, -1):
        head, tail = value[:size], value[-size:]
        yield from ((0, at + size) for at in begins if text.startswith(tail, at))
        yield from ((at - size, len(text)) for at in ends if text.endswith(head, 0, at))


class _Unescaped:
    """A text as it is within `repr` and JSON at any depth: with its escapes read.

    All backslashes are left out, since their number depends on the depth.
    """

    def __init__(self, text: str) -> None:
        parts: list[str] = []
        #: Where a part begins in it, and in the original.
        self._starts, self._originals = [0], [0]
        length = end = 0
        for escape in _ESCAPED.finditer(text):
            parts += [text[end : escape.start()], _character(escape[1])]
            length += len(parts[-2]) + len(parts[-1])
            end = escape.end()
            self._starts.append(length)
            self._originals.append(end)
        self.text = "".join([*parts, text[end:]])

    def original(self, start: int, stop: int) -> tuple[int, int]:
        """Return the place in the original of a place in the text."""
        return self._original(start), self._original(stop)

    def _original(self, at: int) -> int:
        part = bisect_right(self._starts, at) - 1
        return self._originals[part] + at - self._starts[part]


def _character(escape: str) -> str:
    """Return what is escaped, given without its backslashes."""
    if len(escape) < 2:
        return _CONTROLS.get(escape, "")
    codes = [int(digits, 16) for digits in re.split(r"\\*[uUx]", escape) if digits]
    units = "".join(chr(min(code, sys.maxunicode)) for code in codes)
    # Two units may be one character.
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _leaves(value: Any) -> Iterator[str]:
    """Yield the texts of a value that are long enough to be searched for.

    Of a text that is JSON, the values inside it too: a step that parsed it quotes these.
    """
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif not isinstance(value, bool | None) and len(str(value)) >= _FOUND_CHARACTERS:
        yield str(value)
        if isinstance(value, str) and (_JSON.match(value) or _QUOTED.match(value)):
            with suppress(ValueError, RecursionError):
                yield from _leaves(json.loads(value))


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a duplicate name: only readers would see its first value."""
    named = dict(pairs)
    if len(named) < len(pairs):
        raise ValueError("a name is there twice")
    return named

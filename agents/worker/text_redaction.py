"""Hide values in a text, also if they are escaped in it, or cut with it."""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Collection, Iterator

#: A shorter value occurs in too many unrelated texts.
FOUND_CHARACTERS = 4
_HIDDEN = "…[redacted]"
#: A text this long may have been cut, within a value too.
_CUT_TEXT_CHARACTERS = 4_000
_HEX = "[0-9a-fA-F]"
#: An escape of JSON or `repr`, with any number of backslashes.
_ESCAPED = re.compile(
    rf"\\+(u[dD][89abAB]{_HEX}{{2}}\\+u[dD][c-fC-F]{_HEX}{{2}}"
    rf"|u{_HEX}{{4}}|U{_HEX}{{8}}|x{_HEX}{{2}}|[bfnrt]|)"
)
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
#: At most this many characters are left of an escape that was cut.
_CUT_ESCAPE_CHARACTERS = 8


def hide_values(text: str, values: Collection[str]) -> str:
    """Return a text without the values that occur in it, plain or escaped.

    Values may overlap: each character of one of them is hidden.
    """
    spans = [span for value in values for span in _occurrences(text, value)]
    spans += _escaped_occurrences(text, values)
    kept, end = [], 0
    for start, stop in sorted(spans):
        if start >= end:
            kept += [text[end:start], _HIDDEN]
        end = max(end, stop)
    return "".join([*kept, text[end:]])


def _escaped_occurrences(text: str, values: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield the places of escaped values in a text that may be cut."""
    unescaped, may_be_cut = _UnescapedText(text), len(text) >= _CUT_TEXT_CHARACTERS
    for value in {_UnescapedText(value).text for value in values}:
        if len(value) >= FOUND_CHARACTERS:
            spans = [*_occurrences(unescaped.text, value)]
            spans += _occurrences_at_ends(unescaped.text, value) if may_be_cut else ()
            yield from (unescaped.original(*span) for span in spans)


def _occurrences(text: str, value: str) -> Iterator[tuple[int, int]]:
    """Yield the places of a value in a text, also overlapping ones."""
    start = text.find(value)
    while start >= 0:
        yield start, start + len(value)
        start = text.find(value, start + 1)


def _occurrences_at_ends(text: str, value: str) -> Iterator[tuple[int, int]]:
    """Yield the places where a text that was cut begins with the end of a value, or ends with the
    beginning of one.

    An escape may be cut too.
    """
    starts = range(_CUT_ESCAPE_CHARACTERS + 1)
    stops = [len(text) - rest for rest in starts]
    for size in range(min(len(value), len(text)) - 1, FOUND_CHARACTERS - 1, -1):
        head, tail = value[:size], value[-size:]
        yield from ((0, start + size) for start in starts if text.startswith(tail, start))
        yield from ((stop - size, len(text)) for stop in stops if text.endswith(head, 0, stop))


class _UnescapedText:
    """A text without the escapes of `repr` and JSON, which may be nested.

    It has no backslashes at all, since their number depends on the depth.
    """

    def __init__(self, text: str) -> None:
        parts: list[str] = []
        #: The start of each part in this text, and in the original.
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
        """Return the place in the original of a place in this text."""
        return self._original_index(start), self._original_index(stop)

    def _original_index(self, index: int) -> int:
        part = bisect_right(self._starts, index) - 1
        return self._originals[part] + index - self._starts[part]


def _character(escape: str) -> str:
    """Return the text of an escape, which is given without its backslashes."""
    if len(escape) < 2:
        return _CONTROLS.get(escape, "")
    codes = [int(digits, 16) for digits in re.split(r"\\*[uUx]", escape) if digits]
    units = "".join(chr(min(code, sys.maxunicode)) for code in codes)
    # Two units may be one character.
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")

"""What a failed record is found by: its fields, and the words of its texts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from arrester.domain.errors import InvalidValue
from arrester.domain.events import Body, RecordFailed

#: A field of a failed record: its path, such as `value.order.id`, and its text.
Field = tuple[str, str]

_WORD: Final = re.compile(r"\w+")
#: One part of a query: `field:` or nothing, then a text; each is in quotes if it has spaces. A URL
#: is no field.
_PART: Final = re.compile(
    r'(?:(?:(?P<field>[^\W\d][\w.\-]*)|"(?P<name>(?:[^"\\]|\\.)+)"):(?!//))?'
    r'(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s"]\S*))'
)
_ESCAPED: Final = re.compile(r"\\(.)")
#: Texts in records that are JSON are read as deep as this.
_DEPTH: Final = 8
#: The last characters of a path that are kept; no query has a longer name.
_PATH: Final = 1_000
ALLOWED: Final = 'words, "words in this order", field:value, or "field name":value'


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """Fields that a record has with exactly these values, and words that it has in this order.

    All of them must match. Words are compared without case.
    """

    fields: tuple[Field, ...]
    phrases: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> RecordQuery:
        """Return the query of a text such as `invoice:INV-7 "left late"`; raise InvalidValue."""
        fields, phrases = [], []
        for part in _PART.finditer(text):
            value = part["bare"] if part["quoted"] is None else _unescaped(part["quoted"])
            name = part["field"] if part["name"] is None else _unescaped(part["name"])
            if name is not None:
                fields.append((name, value))
            elif words := words_of(value):
                phrases.append(" ".join(words))
        if not fields and not phrases:
            raise InvalidValue("q", text, ALLOWED)
        return cls(tuple(fields), tuple(phrases))

    def terms(self) -> set[str]:
        """Return terms that each matching record has, see `terms_of`."""
        words = {word for phrase in self.phrases for word in phrase.split()}
        return {_field_term(*field) for field in self.fields} | words

    def matched(self, fields: Collection[Field]) -> list[str] | None:
        """Return the paths of the matching fields of a record, None if it does not match."""
        paths: list[str] = []
        for name, value in self.fields:
            found = [path for path, text in fields if text == value and _has_name(path, name)]
            if not found:
                return None
            paths += found
        words = [(path, f" {' '.join(words_of(text))} ") for path, text in fields if self.phrases]
        for phrase in self.phrases:
            found = [path for path, text in words if f" {phrase} " in text]
            if not found:
                return None
            paths += found
        return list(dict.fromkeys(paths))


def _unescaped(quoted: str) -> str:
    return _ESCAPED.sub(r"\1", quoted)


def fields_of(failed: RecordFailed, body: Body | None) -> list[Field]:
    """Return the fields of a failed record: `key`, `task`, `position`, `message`, and its own.

    A text that is JSON is also returned by its fields. Redacted fields are not in the log.
    """
    found = [("message", failed.failure.message)]
    for name, value in (("key", failed.key), ("task", failed.task), ("position", failed.position)):
        if value is not None:
            found.append((name, str(value)))
    if body is not None:
        found += record_fields(body)
    return found


def record_fields(body: Body) -> list[Field]:
    """Return the fields of a record with their values; those that are NULL are left out."""
    return [] if body.record is None else list(_leaves("", body.record, _DEPTH))


def _leaves(path: str, value: Any, depth: int) -> Iterator[Field]:
    # Without recursion: a text may be JSON that is nested as deep as Python's limit.
    left: list[tuple[str, Any, int]] = [(path, value, depth)]
    while left:
        path, value, depth = left.pop()
        if isinstance(value, dict):
            prefix = f"{path}." if path else ""
            parts = [(f"{prefix}{name}"[-_PATH:], part, depth) for name, part in value.items()]
            left += reversed(parts)
        elif isinstance(value, list):
            left += [(path, part, depth) for part in reversed(value)]
        elif isinstance(value, str):
            yield path, value
            if depth and value[:1] in ("{", "["):
                with suppress(msgspec.DecodeError, RecursionError, UnicodeError):
                    left.append((path, msgspec.json.decode(value), depth - 1))
        elif value is not None:
            yield path, msgspec.json.encode(value).decode()


def terms_of(fields: Collection[Field]) -> set[str]:
    """Return the terms of a record: each word, and each field with its value."""
    terms: set[str] = set()
    for path, text in fields:
        terms.update(words_of(text))
        terms.add(_field_term(path, text))
    return terms


def words_of(text: str) -> list[str]:
    """Return the words of a text in order, without case: runs of letters, digits and `_`.

    A letter with an accent is the same in one character and in two.
    """
    return _WORD.findall(unicodedata.normalize("NFC", text.casefold()))


def _field_term(name: str, value: str) -> str:
    # Only the last part of a path: a query may name the last parts only. No word has a colon.
    return f"{name.rpartition('.')[2]}:{value}"


def _has_name(path: str, name: str) -> bool:
    return path == name or path.endswith(f".{name}")

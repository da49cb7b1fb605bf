"""The fields of a failed record that the message of its failure names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from arrester.domain.events import Failure
from arrester.domain.visible_text import visible

#: A record with more fields is searched up to here.
MOST_FIELDS: Final = 2_000
_DEPTH: Final = 20
_QUOTES: Final = "'\"`"


def named(record: Mapping[str, Any], failure: Failure) -> dict[str, frozenset[str]]:
    """Return the top-level fields that a failure names, each with the names of fields inside it.

    Only exact names count: the field that Spark names, or a name in quotes or alone in a line.
    """
    lines = {line.strip() for line in failure.message.splitlines()}
    found: dict[str, set[str]] = {}
    for top, path in islice(_paths(record), MOST_FIELDS):
        name = path.rpartition(".")[2]
        if any(_names(failure, lines, each) for each in {name, path}):
            inside = found.setdefault(top, set())
            if path != top:
                inside.add(name)
    return {top: frozenset(inside) for top, inside in found.items()}


def _names(failure: Failure, lines: set[str], name: str) -> bool:
    if not name:
        return False
    is_quoted = any(f"{quote}{name}{quote}" in failure.message for quote in _QUOTES)
    return is_quoted or name == failure.field or name in lines


def _paths(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each field with the top-level field that contains it, also in a text that is JSON."""
    for top, value in record.items():
        yield top, top
        for path in _inside(_parsed(value), "", 0):
            yield top, f"{top}{path}"


def _inside(value: Any, path: str, depth: int) -> Iterator[str]:
    if depth == _DEPTH:
        return
    if isinstance(value, dict):
        for name, item in value.items():
            yield f"{path}.{name}"
            yield from _inside(item, f"{path}.{name}", depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _inside(item, path, depth + 1)


def _parsed(value: Any) -> Any:
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def marked(text: str, names: Iterable[str]) -> SafeString:
    """Return the text of a field as HTML, with the names of fields in its JSON marked."""
    escaped = "|".join(re.escape(json.dumps(each, ensure_ascii=False)) for each in sorted(names))
    if not escaped:
        return format_html("{}", visible(text))
    parts = re.split(rf"((?:{escaped})\s*:)", text)
    formats = ("{}", "<mark>{}</mark>")
    pieces = (format_html(formats[n % 2], visible(part)) for n, part in enumerate(parts))
    return format_html_join("", "{}", ((piece,) for piece in pieces))

"""What a JSON Patch changes in a record, column by column, and word by word in each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Final, NamedTuple

import msgspec

from arrester.domain import json_patch
from arrester.domain.visible_text import visible

#: Longer values are compared as a whole.
MAX_WORDS: Final = 3_000
#: The most characters of a value that are shown, and those around a change in a longer one.
MAX_SHOWN: Final = 2_000
_AROUND: Final = 80
_encoder = msgspec.json.Encoder(decimal_format="number")
_WORD = re.compile(r"\w+|\s+|.", re.DOTALL)


class Part(NamedTuple):
    """A part of a value; whether the other value has other words there."""

    text: str
    differs: bool


class Change(NamedTuple):
    """A column before and after; None: the record has no such column."""

    column: str
    before: str | None
    after: str | None
    #: The same values; if they have no words in common, each is one part.
    before_parts: Sequence[Part] = ()
    after_parts: Sequence[Part] = ()


def changes(before: str, after: str) -> list[Change]:
    """Return the columns in which two records differ; both are JSON objects."""
    first, second = json_patch.loads(before), json_patch.loads(after)
    names = [*first, *(name for name in second if name not in first)]
    both = ((name, _shown(first, name), _shown(second, name)) for name in names)
    return [Change(*each, *_parts(*each[1:])) for each in both if each[1] != each[2]]


def _shown(record: dict[str, object], name: str) -> str | None:
    if name not in record:
        return None
    return visible(msgspec.json.format(_encoder.encode(record[name]), indent=2).decode())


def _parts(before: str | None, after: str | None) -> tuple[list[Part], list[Part]]:
    """Return both values divided where their words differ."""
    words: list[list[str]] = [
        [] if each is None else _WORD.findall(each) for each in (before, after)
    ]
    whole = [Part(_cut(before), False)], [Part(_cut(after), False)]
    if not all(words) or max(map(len, words)) > MAX_WORDS:
        return whole
    matcher = SequenceMatcher(a=words[0], b=words[1], autojunk=False)
    parts: tuple[list[Part], list[Part]] = ([], [])
    for tag, *ends in matcher.get_opcodes():
        for own, some, (start, end) in zip(parts, words, (ends[:2], ends[2:]), strict=True):
            if start != end:
                text = "".join(some[start:end])
                own.append(Part(_cut(text) if tag != "equal" else text, tag != "equal"))
    is_alike = any(not each.differs and re.search(r"\w", each.text) for each in parts[0])
    if not is_alike:
        return whole
    return tuple(_shortened(each) for each in parts)  # type: ignore[return-value]  # two


def _shortened(parts: Sequence[Part]) -> list[Part]:
    """Return the parts without the middle of long ones that are equal."""
    shown = []
    for number, part in enumerate(parts):
        text = part.text
        if not part.differs and len(text) > 3 * _AROUND:
            begin = "" if number == 0 else text[:_AROUND]
            end = "" if number == len(parts) - 1 else text[-_AROUND:]
            text = f"{begin} … {end}"
        shown.append(Part(text, part.differs))
    return shown


def _cut(text: str | None) -> str:
    text = text or ""
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"

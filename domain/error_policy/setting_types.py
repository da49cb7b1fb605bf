"""The definition and the parsers of one setting; see `setting_definitions` for the settings."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

FLAG_RULE = "true or false"
HANDLER_RULE = "a dotted path to a handler, or an object with handle(context, record, exception)"
CONVERTER_RULE = "a dotted path to a converter: a function of a row, or an object with convert(row)"
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
#: Spark's error conditions, SQLSTATEs and their classes: CAST_INVALID_INPUT, 23505, 23.
_CONDITION = re.compile(r"[A-Z][A-Z0-9_]*(\.[A-Z0-9_]+)*|[0-9A-Z]{2}([0-9A-Z]{3})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key(Generic[T]):
    """One setting: `parse` raises ValueError for a value outside `allowed`."""

    name: str
    default: T
    allowed: str
    parse: Callable[[object], T]
    #: One or two sentences for the reference page.
    meaning: str
    #: Kafka Connect's name of the setting; different values under both names are a fault.
    connect_name: str | None = None
    #: A former name; if both are given, the current name wins.
    former_name: str | None = None


def flag(value: object) -> bool:
    """Read true or false, also as text."""
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def whole_number(minimum: int, maximum: int = 2**62) -> Callable[[object], int]:
    """Return a parser of whole numbers within bounds, also as text."""

    def parse(value: object) -> int:
        # bool is an int in Python, but never a count.
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError(value)
        number = int(value)
        if not minimum <= number <= maximum:
            raise ValueError(value)
        return number

    return parse


def share(value: object) -> float:
    """Read a share above 0 and at most 1, also as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(value)
    number = float(value)
    if not 0 < number <= 1:
        raise ValueError(value)
    return number


def any_whole_number(value: object) -> int:
    """Read a whole number; every negative one means unlimited."""
    return max(-1, whole_number(-(2**63), 2**63 - 1)(value))


def text(value: object) -> str:
    """Read a text that is not empty, such as a path."""
    if not isinstance(value, str | os.PathLike) or not str(value).strip():
        raise ValueError(value)
    return str(value).strip()


def sink_format(value: object) -> str:
    """Read the name of a Spark sink; `text` is refused: it takes one column, a dead letter has
    more."""
    name = text(value)
    if name.lower() == "text":
        raise ValueError(value)
    return name


def text_or_nothing(value: object) -> str | None:
    """Read a text; the empty one means None."""
    return None if value == "" else text(value)


def choice(*names: str) -> Callable[[object], str]:
    """Return a parser of one of some words."""

    def parse(value: object) -> str:
        word = text(value).lower()
        if word not in names:
            raise ValueError(value)
        return word

    return parse


def names(value: object) -> tuple[str, ...]:
    """Read names, as a list or separated by commas."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple | set | frozenset):
        raise ValueError(value)
    return tuple(text(part) for part in parts if part != "")


def class_names(value: object) -> tuple[str, ...]:
    """Read dotted names of exception classes, Spark error conditions and SQLSTATEs."""
    classes = names(value)
    if not all(_DOTTED.fullmatch(name) or _CONDITION.fullmatch(name) for name in classes):
        raise ValueError(value)
    return classes


def handler(value: object) -> object:
    """Read a handler: a dotted path, a class or an object; it is not imported here."""
    if isinstance(value, str):
        if _DOTTED.fullmatch(value.strip()) is None:
            raise ValueError(value)
        return value.strip()
    if not callable(getattr(value, "handle", None)):
        raise ValueError(value)
    return value

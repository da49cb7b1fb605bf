"""Check arguments where they enter, so that they do not fail later with another error."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from arrester.domain.errors import InvalidValue


def wrong_type(name: str, value: object, allowed: str) -> InvalidValue:
    """Return the error of an argument of another type, which it names."""
    return InvalidValue(name, value, f"{allowed}; this is {_kind(value)}")


def first_line(exc: BaseException) -> str:
    """Return the first non-empty line of a message, else the exception's class."""
    lines = (line.strip() for line in str(exc).splitlines())
    return next(filter(None, lines), type(exc).__name__)


def check_text(name: str, value: object, allowed: str) -> None:
    """Raise InvalidValue unless `value` is a text with other characters than blanks."""
    if not isinstance(value, str):
        raise wrong_type(name, value, allowed)
    if not value.strip():
        raise InvalidValue(name, value, allowed)


def check_remark(name: str, value: object) -> None:
    """Raise InvalidValue unless `value` is None, or a text that can be stored."""
    allowed = "a text, or None"
    if value is None:
        return
    if not isinstance(value, str):
        raise wrong_type(name, value, allowed)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidValue(name, value, "a text without unpaired surrogates") from None


def check_mapping(name: str, value: object, allowed: str) -> None:
    """Raise InvalidValue unless `value` is None or a mapping."""
    if value is not None and not isinstance(value, Mapping):
        raise wrong_type(name, value, allowed)


def check_flag(name: str, value: object) -> None:
    """Raise InvalidValue unless `value` is True or False."""
    if not isinstance(value, bool):
        raise wrong_type(name, value, "True or False")


def check_number(name: str, value: object, allowed: str) -> None:
    """Raise InvalidValue unless `value` is a number; True and False are no numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, value, allowed)


def checked_path(name: str, value: object, allowed: str) -> str:
    """Return a path as text; raises InvalidValue unless it is a text or a path of Python."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    check_text(name, path, allowed)
    return str(path)


def check_known(name: str, value: object, known: Iterable[str], allowed: str) -> None:
    """Raise InvalidValue, with the nearest valid values, unless `value` is one of `known`."""
    names = list(known)
    if not isinstance(value, str):
        raise wrong_type(name, value, allowed)
    if value not in names:
        raise InvalidValue(name, value, allowed + nearest(value, names))


def nearest(value: str, known: Iterable[str]) -> str:
    """Return a hint at the up to three names that are most like `value`; empty without one."""
    by_lower = {name.lower(): name for name in known}
    matches = difflib.get_close_matches(value.lower(), by_lower, n=3)
    return f" (nearest: {', '.join(by_lower[match] for match in matches)})" if matches else ""


def check_function(name: str, fn: object, allowed: str, *, arguments: int) -> None:
    """Raise InvalidValue unless `fn` can be called with so many positional arguments.

    A coroutine function is refused: its call only makes an object, and nothing of it runs.
    """
    if not callable(fn):
        raise wrong_type(name, fn, allowed)
    if is_async(fn):
        raise InvalidValue(name, fn, f"{allowed}, without async: it is called and not awaited")
    if not _takes(fn, arguments):
        raise InvalidValue(name, fn, f"{allowed}; this one takes {_signature(fn)}")


def is_async(fn: Any) -> bool:
    """Whether `fn` is a coroutine function or an async generator: a function, a method, a partial
    of one, or an object whose call is one."""
    while isinstance(fn, partial):
        fn = fn.func
    # The class of an object, not of a class: a class is called to make an object.
    call = None if isinstance(fn, type) else vars(type(fn)).get("__call__")
    checks: Sequence[Callable[[Any], bool]] = (
        inspect.iscoroutinefunction,
        inspect.isasyncgenfunction,
    )
    return any(check(each) for check in checks for each in (fn, call))


def _takes(fn: Callable[..., object], arguments: int) -> bool:
    try:
        inspect.signature(fn).bind(*[None] * arguments)
    except TypeError:
        return False
    except ValueError:  # a function of C without a signature
        return True
    return True


def _signature(fn: Callable[..., object]) -> str:
    return str(inspect.signature(fn)).partition(" -> ")[0]


def _kind(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "None" if value is None else f"of type {type(value).__name__}"

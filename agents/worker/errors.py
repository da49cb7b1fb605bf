"""Exceptions on executors: their texts, their classification, and the waits between attempts.

The driver sends the rules, as functions of modules that are shipped with this package.
"""

from __future__ import annotations

import os
import sysconfig
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

Row = dict[str, Any]

RETRIABLE = "RETRIABLE"
SELF_HEALING = "SELF_HEALING"
_MESSAGE_CHARACTERS = 4_000
_STACK_CHARACTERS = 16_000
_STACK_FRAMES = 60
_HERE = os.path.dirname(__file__)
#: The agent's folder. In the archive that executors have it is a folder, too.
_AGENT = os.path.dirname(_HERE)
#: Longer waits are slept in parts, since the system refuses extremely long sleeps.
_LONGEST_SLEEP_SECONDS = 3_600.0


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The driver's rules about failures, as functions."""

    #: Returns the wait after a number of failed attempts; None: no further attempt.
    wait_after: Callable[..., int | None]
    #: Returns the names and the condition of an exception.
    describe: Callable[[BaseException], Any]
    #: Returns the name or condition by which a described exception has a kind; None: it has none.
    known_as: Callable[[Any, Mapping[str, str]], str | None]
    #: The kind of each class or condition.
    kinds: Mapping[str, str]
    #: Whether a second attempt is possible at all.
    retries: bool
    #: Whether the duration of failed operations is measured. This reads the clock for each record.
    timed: bool = True


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The failure of the last attempt at an operation."""

    error: BaseException
    #: What `Rules.describe` returned.
    cause: Any
    kind: str | None


def failure_from(exc: BaseException, rules: Rules) -> Failed:
    """Return an exception as a failure, classified by the rules."""
    cause = rules.describe(exc)
    name = rules.known_as(cause, rules.kinds)
    return Failed(error=exc, cause=cause, kind=None if name is None else rules.kinds[name])


def error_row(
    failed: Failed,
    attempts: int,
    *,
    took_ms: int | None,
    fields: Row | None = None,
    more_names: Sequence[str] = (),
) -> Row:
    """Return a failure as a value of ERROR_TYPE; `fields` replace those of the exception."""
    cause = failed.cause
    return (fields or error_fields(failed.error)) | {
        "names": [*more_names, *map(valid_unicode, cause.names)],
        "condition": None if cause.condition is None else valid_unicode(cause.condition),
        "kind": failed.kind,
        "attempts": attempts,
        "took_ms": took_ms,
    }


def error_fields(exc: BaseException, *, below: str = _HERE) -> Row:
    """Return class, message, stack and frame.

    The trace begins after the frames of modules in the folder `below`.
    """
    trace = exc.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(below):
        trace = trace.tb_next
    try:
        lines = traceback.format_exception(type(exc), exc, trace, limit=_STACK_FRAMES)
        stack = "".join(lines)
    except BaseException as formatting:  # an exception whose own __str__ raises
        stack = f"{type(exc).__name__}, and its text cannot be had: {type(formatting).__name__}"
    return bounded_fields(class_name(exc), text(exc), stack=stack, frame=_user_frame(trace))


def bounded_fields(name: str, message: str, *, stack: str | None, frame: str | None) -> Row:
    """Return the fields of an exception as a row, each within its limit."""
    return {
        "exception_class": valid_unicode(name),
        "message": valid_unicode(message[:_MESSAGE_CHARACTERS]),
        "stack": None if stack is None else valid_unicode(stack[-_STACK_CHARACTERS:]),
        "frame": None if frame is None else valid_unicode(frame),
    }


def valid_unicode(text: str) -> str:
    """Return a text without unpaired surrogates, which Arrow and Spark refuse."""
    return text.encode(errors="replace").decode()


def class_name(exc: BaseException) -> str:
    """Return the full name of the class; builtins and our own without their module."""
    kind = type(exc)
    if kind.__module__.rpartition(".")[0] == __package__ or kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def text(exc: BaseException) -> str:
    """Return the message; an exception's own `__str__` may raise."""
    try:
        return valid_unicode(str(exc))
    except BaseException as formatting:
        return f"(no text: its __str__ raised {type(formatting).__name__})"


def _user_frame(trace: TracebackType | None) -> str | None:
    """Return the innermost frame outside the standard library and installed packages.

    If there is none, return the outermost frame. No frame of the agent is one.
    """
    libraries = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    user_frame = None
    for frame in traceback.extract_tb(trace):
        if frame.filename.startswith(_AGENT + os.sep):
            continue
        is_library = frame.filename.startswith((*libraries, "<frozen"))
        if user_frame is None or not is_library:
            user_frame = frame
    if user_frame is None:
        return None
    return f"{os.path.basename(user_frame.filename)}:{user_frame.lineno} in {user_frame.name}"


def now_ms() -> int:
    """Return the time of a monotonic clock, by which budgets are measured."""
    return in_ms(time.monotonic())


def in_ms(seconds: float) -> int:
    """Return a time of that clock in milliseconds."""
    return int(seconds * 1_000)


def sleep(wait_ms: int) -> None:
    """Wait before another attempt."""
    remaining = wait_ms / 1_000
    while remaining > 0:
        time.sleep(min(remaining, _LONGEST_SLEEP_SECONDS))
        remaining -= _LONGEST_SLEEP_SECONDS

"""The text of an exception: bounded, and without characters that Arrow and Spark refuse."""

from __future__ import annotations

import os
import sysconfig
import traceback
from types import TracebackType
from typing import Any

Row = dict[str, Any]

_MESSAGE_CHARACTERS = 4_000
_STACK_CHARACTERS = 16_000
_STACK_FRAMES = 60
_HERE = os.path.dirname(__file__)


def described(exc: BaseException, *, ours: str = _HERE) -> Row:
    """Return class, message, stack and frame; the trace begins below the folder `ours`."""
    trace = exc.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(ours):
        trace = trace.tb_next
    try:
        lines = traceback.format_exception(type(exc), exc, trace, limit=_STACK_FRAMES)
        stack = "".join(lines)
    except BaseException as formatting:  # an exception whose own __str__ raises
        stack = f"{type(exc).__name__}, and its text cannot be had: {type(formatting).__name__}"
    return error(class_name(exc), text(exc), stack=stack, frame=_user_frame(trace))


def error(name: str, message: str, *, stack: str | None, frame: str | None) -> Row:
    """Return these as a row, each within its limit."""
    return {
        "exception_class": unicode(name),
        "message": unicode(message[:_MESSAGE_CHARACTERS]),
        "stack": None if stack is None else unicode(stack[-_STACK_CHARACTERS:]),
        "frame": None if frame is None else unicode(frame),
    }


def unicode(given: str) -> str:
    """Return text that Arrow and Spark accept: without unpaired surrogates."""
    return given.encode(errors="replace").decode()


def class_name(exc: BaseException) -> str:
    """Return the full name of the class; builtins and our own without their module."""
    kind = type(exc)
    if kind.__module__.rpartition(".")[0] == __package__ or kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def text(exc: BaseException) -> str:
    """Return the message; an exception's own `__str__` may raise."""
    try:
        return unicode(str(exc))
    except BaseException as formatting:
        return f"(no text: its __str__ raised {type(formatting).__name__})"


def _user_frame(trace: TracebackType | None) -> str | None:
    """Return the innermost frame outside the standard library and installed packages."""
    libraries = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    chosen = None
    for summary in traceback.extract_tb(trace):
        inside = summary.filename.startswith((*libraries, "<frozen"))
        if chosen is None or not inside:
            chosen = summary
    if chosen is None:
        return None
    return f"{os.path.basename(chosen.filename)}:{chosen.lineno} in {chosen.name}"

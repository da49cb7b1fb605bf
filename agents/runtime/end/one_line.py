"""End a script in one line by an exception that is no fault of it: Ctrl-C, or a refused start."""

from __future__ import annotations

import logging
import sys
from types import TracebackType

#: What IPython calls instead of printing a traceback.
_RENDER = "_render_traceback_"
#: A line of py4j, with a traceback, about a call that Ctrl-C has interrupted.
_OF_PY4J = "KeyboardInterrupt while sending command."


def end_in_one_line(exc: BaseException, line: str) -> None:
    """Let Python and notebooks print `line` instead of the traceback of an exception.

    They print the traceback if another exception was being handled: it may be the author's.
    """
    if exc.__context__ is None and exc.__cause__ is None:
        setattr(exc, _RENDER, lambda: [line])
        if not isinstance(sys.excepthook, _Hook):
            sys.excepthook = _Hook()


def interrupted(exc: BaseException | None, application: str) -> None:
    """End in one line if Ctrl-C has ended the script."""
    if isinstance(exc, KeyboardInterrupt):
        end_in_one_line(exc, f"{application}: stopped by Ctrl-C (SIGINT)")


class _Hook:
    """Print the line of an exception that has one; pass others on."""

    def __init__(self) -> None:
        self._previous = sys.excepthook

    def __call__(
        self, kind: type[BaseException], exc: BaseException, trace: TracebackType | None
    ) -> None:
        lines = getattr(exc, _RENDER, None)
        if lines is None:
            self._previous(kind, exc, trace)
        else:
            print(*lines(), sep="\n", file=sys.stderr)


def is_no_interrupted_call(record: logging.LogRecord) -> bool:
    """Whether a log record is none of py4j about Ctrl-C. A filter for the root logger."""
    return record.msg != _OF_PY4J

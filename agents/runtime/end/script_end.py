"""How the author's script ended: by itself, by a signal, or by an exception."""

from __future__ import annotations

import signal
import sys
from typing import NamedTuple

from arrester.agents.runtime.end.signals import BY_SIGNAL
from arrester.agents.worker.errors import class_name, text

#: Set on an exception that an event of a run has reported.
_REPORTED = "_arrester_reported"
_CHARACTERS = 500


class ScriptEnd(NamedTuple):
    """The end of a script, or of the block of an agent, in words."""

    reason: str
    #: An exception that no event has reported.
    exception: BaseException | None = None


def script_end(exc: BaseException | None, *, usual: str) -> ScriptEnd:
    """Return the end of a script by `exc`, or its usual end."""
    if exc is None:
        return ScriptEnd(usual)
    if isinstance(exc, KeyboardInterrupt):
        return ScriptEnd("the driver received SIGINT")
    if isinstance(exc, SystemExit):
        if exc.code == BY_SIGNAL + signal.SIGTERM:
            return ScriptEnd("the driver received SIGTERM")
        if exc.code in (None, 0):
            return ScriptEnd("the script has exited")
    elif not isinstance(exc, Exception):
        return ScriptEnd(usual)
    if is_reported(exc):
        return ScriptEnd(f"{usual}: {type(exc).__name__}")
    first = text(exc).strip().partition("\n")[0][:_CHARACTERS]
    return ScriptEnd(f"the script failed: {class_name(exc)}: {first}".removesuffix(": "), exc)


def uncaught_exception() -> BaseException | None:
    """Return the exception that ended the script, None if none did. For functions of `atexit`.

    In a notebook or a shell it would be that of any earlier input, which ended nothing.
    """
    if hasattr(sys, "ps1"):
        return None
    # Before Python 3.12, `last_exc` has the name `last_value`.
    found = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return found if isinstance(found, BaseException) else None


def mark_reported(exc: BaseException | None) -> None:
    """Record that an event of a run has reported an exception, which the script may get, too."""
    if exc is not None:
        # `setattr` would fail for an author's class that is a frozen dataclass.
        vars(exc)[_REPORTED] = True


def is_reported(exc: BaseException) -> bool:
    """Whether an event of a run has reported an exception."""
    return _REPORTED in vars(exc)

"""A failure in one line, for people."""

from __future__ import annotations

from arrester.domain.events import Failure
from arrester.domain.state.states import GroupState


def short(exception_class: str) -> str:
    """Return the class without its package."""
    return exception_class.rpartition(".")[2] or exception_class


def cause(failure: Failure | GroupState) -> str:
    """Return a failure in a line: its class without the package, and its message's first line."""
    first = failure.message.strip().partition("\n")[0]
    name = short(failure.exception_class)
    return f"{name}: {first}" if first else name

"""Why a run ended, or began again, in one line for people: never a trace."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types

from arrester.agents.decisions.events import first_line
from arrester.agents.decisions.fatal import SinkFailed
from arrester.agents.executor.error_text import class_name
from arrester.agents.spark.errors import said_by_jvm

_CHARACTERS = 500


def reason_of(exc: BaseException) -> str:
    """Return what an exception says; of one of the JVM, class and message of its cause."""
    if isinstance(exc, SinkFailed):
        raised = exc.raised
        said = reason_of(raised)
        of_jvm = isinstance(raised, Py4JJavaError)
        said = said if of_jvm else f"{type(raised).__name__}: {said}"
        return f"the sink raised {said}"[:_CHARACTERS]
    if isinstance(exc, Py4JJavaError):
        return ": ".join(class_and_message(exc))[:_CHARACTERS]
    return first_line(str(exc))


def class_and_message(exc: BaseException) -> tuple[str, str]:
    """Return the full name of what was raised, and what it says: of the JVM's, its cause."""
    if isinstance(exc, Py4JJavaError):
        try:
            return said_by_jvm(exc.java_exception)
        except Exception:  # the JVM is gone
            return class_name(exc), first_line(str(exc))
    return class_name(exc), str(exc)

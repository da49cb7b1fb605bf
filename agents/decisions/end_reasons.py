"""The reason why a run ended or restarted, in one line without a stack trace."""

from __future__ import annotations

from arrester.agents.decisions.events import first_line
from arrester.agents.decisions.fatal import SinkFailed
from arrester.agents.executor.error_text import class_name
from arrester.agents.spark.errors import java_class_and_message

_CHARACTERS = 500


def reason_of(exc: BaseException) -> str:
    """Return the message of an exception; of a Java exception, class and message of its cause."""
    if isinstance(exc, SinkFailed):
        raised = exc.raised
        of_java = java_class_and_message(raised) is not None
        name = "" if of_java else f"{type(raised).__name__}: "
        return f"the sink raised {name}{reason_of(raised)}"[:_CHARACTERS]
    java = java_class_and_message(exc)
    return first_line(str(exc)) if java is None else ": ".join(java)[:_CHARACTERS]


def class_and_message(exc: BaseException) -> tuple[str, str]:
    """Return class and message of an exception; of a Java exception, those of its cause."""
    return java_class_and_message(exc) or (class_name(exc), str(exc))

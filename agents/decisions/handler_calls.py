"""Call the handler of a failed record, and explain an answer that is not valid."""

from __future__ import annotations

import os

from arrester.agents.error_policy.respond import HandlerRaised, as_answer
from arrester.agents.handlers import ErrorContext, Handler, Record, RecordError
from arrester.agents.worker.errors import error_fields
from arrester.agents.worker.type_check import preview

_HERE = os.path.dirname(__file__)


def call_handler(
    handler: Handler, context: ErrorContext, record: Record, exception: RecordError
) -> object:
    """Return the handler's answer, or HandlerRaised. The rules check whether the answer is
    valid."""
    try:
        return handler.handle(context, record, exception)
    except BaseException as exc:  # SystemExit in a handler must not hang the query
        fields = error_fields(exc, below=_HERE)
        name, message = fields["exception_class"], fields["message"]
        return HandlerRaised(f"{name}: {message}" if message else name, stack=fields["stack"])


def fault_of(handler: Handler, answer: object) -> str | None:
    """Return what is wrong with a handler's answer, None if it is valid."""
    if as_answer(answer) is not None:
        return None
    name = type(handler).__name__
    if isinstance(answer, HandlerRaised):
        return f"its handler {name} raised {answer.error}"
    return f"its handler {name} returned {preview(answer)}, not CONTINUE, RETRY, PAUSE or FAIL"

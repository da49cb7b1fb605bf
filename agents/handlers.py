"""Handlers of failed records (KIP-210, KIP-990) and their arguments."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from arrester.agents.arguments import check_function, check_mapping
from arrester.agents.error_policy.respond import as_answer
from arrester.domain.error_policy.policy import Response
from arrester.domain.error_policy.setting_types import class_names
from arrester.domain.errors import ArresterError, InvalidValue
from arrester.domain.events import FinalResponse

CONTINUE: Final = Response.CONTINUE
RETRY: Final = Response.RETRY
PAUSE: Final = Response.PAUSE
FAIL: Final = Response.FAIL

#: Responses by exception class, dotted name of one, name of a JVM class, or Spark error condition.
OnClass = Mapping[type[BaseException] | str, Response | FinalResponse]
_ON_RULE = (
    "exception classes, their dotted names or Spark error conditions, "
    "each with CONTINUE, RETRY, PAUSE or FAIL"
)

#: The names of failures that Arrester finds itself, which pages show, and what answers them.
OWN_FAILURES = {
    "WrongType": "TypeError, the base class of WrongType",
    "Unreadable": "ValueError, the base class of Unreadable",
    "WorkerCrashed": "on_error= in place of on=: WorkerCrashed is no exception class",
    "NotRepeated": "on_error= in place of on=: NotRepeated is no exception class",
}
_HANDLE_RULE = "a function handle(context, record, exception) that returns a Response"


class RecordError(ArresterError):
    """The failure of a record, as the driver receives it; the exception stays on the executor.

    `exception_class` is the full name of the exception's class. `condition` is Spark's error
    condition, if there is one. `stack` is the Python or JVM stack trace as text.
    """

    def __init__(
        self, exception_class: str, message: str, *, condition: str | None, stack: str | None
    ) -> None:
        super().__init__(f"{exception_class}: {message}")
        self.exception_class = exception_class
        self.message = message
        self.condition = condition
        self.stack = stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stage of a pipeline: its name, its class and its configuration."""

    #: `source`, `deserialize`, `process:<name>` or `produce`.
    name: str
    kind: str
    #: The arguments of its definition as texts, without secrets.
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorContext:
    """Where, when and how a record failed (the contexts of KIP-298 and KIP-1033).

    `topic`, `partition`, `offset`, `timestamp` and `headers` belong to a record from Kafka; for any
    other they are None (`headers`: empty).
    """

    application: str
    pipeline: str
    #: `source`, `deserialize`, `process:<name>` or `produce`.
    stage: str
    #: The key of the task; None for the global one.
    task: str | None
    #: The position in the task; None only if it is not usable (stage `source`).
    position: int | None
    #: The number of attempts.
    attempt: int = 1
    #: The time of the decision.
    at: datetime | None = None
    #: The duration of the operation, with the waits between attempts: of a Python step, of
    #: `.produce` and of `.write`. Of a native step from the first failure on, if it was retried;
    #: else None.
    took_ms: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp: datetime | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    #: All stages of the pipeline, in order; `stages[index]` failed.
    stages: Sequence[Stage] = ()
    index: int = 0
    #: The agent's settings, without secrets.
    settings: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Identify the record without showing its content."""
        place = f"task {self.task!r}, position {self.position}"
        return f"{self.application}/{self.pipeline}: {self.stage} at {place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The failed source row, before any step of the pipeline."""

    key: str | None
    value: Any
    row: Mapping[str, Any]
    #: The original bytes of a record from Kafka.
    raw_key: bytes | None = None
    raw_value: bytes | None = None


class Handler(Protocol):
    """Decides about a failed record.

    It is called on the driver, once per failed record, in (task, position) order. An exception or
    an invalid answer means FAIL. A handler with an attribute `answer` declares that it always gives
    this answer and need not be called: a million failed records then take no Python calls.
    """

    def handle(
        self, context: ErrorContext, record: Record, exception: RecordError
    ) -> Response | FinalResponse:
        """Return CONTINUE (skip the record), RETRY, PAUSE (hold its task) or FAIL.

        RETRY is valid for a retriable failure within the limits; otherwise it is FAIL.
        """
        ...


@dataclass(frozen=True, slots=True)
class Always:
    """Always gives the same answer, such as that of an operator's override."""

    answer: Response

    def handle(self, context: ErrorContext, record: Record, exception: RecordError) -> Response:
        """Return the answer."""
        return self.answer


@dataclass(frozen=True, slots=True)
class LogAndFail(Always):
    """FAIL at the first failed record: nothing is skipped and the thread ends (the default)."""

    answer: Response = Response.FAIL


@dataclass(frozen=True, slots=True)
class LogAndContinue(Always):
    """CONTINUE: skip the failed record, with a dead letter if enabled."""

    answer: Response = Response.CONTINUE


@dataclass(frozen=True, slots=True)
class LogAndPause(Always):
    """PAUSE: hold the failed record and all later ones of its task (KIP-990)."""

    answer: Response = Response.PAUSE


def constant_answer(handler: Handler | None) -> Response | None:
    """Return the declared answer of `handler`, None if it must be called.

    The effect of RETRY depends on the record, so a handler that declares RETRY is called, too.
    """
    declared = as_answer(getattr(handler, "answer", None))
    return None if declared is Response.RETRY else declared


def check_handler(name: str, handler: Any) -> Handler:
    """Return `handler` if it is valid, else raise InvalidValue naming the argument `name`."""
    answer = getattr(handler, "answer", None)
    declares_invalid_answer = answer is not None and as_answer(answer) is None
    if not callable(getattr(handler, "handle", None)) or declares_invalid_answer:
        allowed = "an object with handle(context, record, exception) -> Response, not a class"
        raise InvalidValue(name, handler, allowed)
    # A mock or a class with __getattr__ has any attribute; a class has the function unbound.
    check_function(f"{name}.handle", handler.handle, _HANDLE_RULE, arguments=3)
    checked: Handler = handler
    return checked


def checked_answers(
    owner: str, on_error: Handler | None, on: OnClass | None
) -> dict[str, Response]:
    """Return the `on` of a step or sink by full names; raises InvalidValue, also for `on_error`.

    A text is the dotted name of a Python or JVM class, the bare name of a Python builtin, or a
    Spark error condition. A condition includes its sub-conditions.
    """
    if on_error is not None:
        check_handler(f"{owner}: on_error", on_error)
    check_mapping(f"{owner}: on", on, _ON_RULE)
    answers: dict[str, Response] = {}
    for key, given in (on or {}).items():
        name, answer = _full_name(key), as_answer(given)
        if name is None or answer is None:
            own = OWN_FAILURES.get(key) if isinstance(key, str) else None
            raise InvalidValue(f"{owner}: on", {key: given}, own or _ON_RULE)
        answers[name] = answer
    return answers


def _full_name(key: object) -> str | None:
    """Return the full name of a key of `on`, None for an invalid key."""
    if isinstance(key, type) and issubclass(key, BaseException):
        return f"{key.__module__}.{key.__qualname__}"
    if not isinstance(key, str):
        return None
    builtin = getattr(builtins, key, None)
    if isinstance(builtin, type) and issubclass(builtin, BaseException):
        # `IOError` is an alias of OSError.
        return f"builtins.{builtin.__qualname__}"
    try:
        [name] = class_names([key])
    except ValueError:
        return None
    return name

"""What to do with a failed record: the handlers of KIP-210, KIP-990, and what they are asked."""

from __future__ import annotations

import builtins
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from arrester.controlplane.domain.error_policy.policy import Answer
from arrester.controlplane.domain.error_policy.respond import HandlerRaised, as_answer
from arrester.controlplane.domain.error_policy.setting_types import class_names
from arrester.controlplane.domain.errors import ArresterError, InvalidValue
from arrester.controlplane.domain.events import Response

_log = logging.getLogger("arrester.handlers")

CONTINUE: Final = Answer.CONTINUE
RETRY: Final = Answer.RETRY
PAUSE: Final = Answer.PAUSE
FAIL: Final = Answer.FAIL

#: An exception class, its dotted name, the name of a JVM class or a Spark error condition, and
#: what is answered to it.
OnClass = Mapping[type[BaseException] | str, Answer | Response]
_ON_RULE = (
    "exception classes, their dotted names or Spark error conditions, "
    "each with CONTINUE, RETRY, PAUSE or FAIL"
)


class RecordError(ArresterError):
    """What a record's failure was, as far as the driver knows: the exception stayed on an executor.

    `exception_class` is the full name of the class that was raised, `condition` Spark's error
    condition where there is one, `stack` the Python or JVM trace as text.
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
    """A stage of a pipeline: what it is called, of what class it is and how it was configured."""

    #: `source`, `deserialize`, `process:<name>` or `produce`.
    name: str
    kind: str
    #: What was given to it, as texts; what looks secret by its name is not there.
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorContext:
    """Where, when and how a record failed (the contexts of KIP-298 and KIP-1033).

    `topic`, `partition`, `offset`, `timestamp` and `headers` are of a record from Kafka, and None
    (no headers) for any other.
    """

    application: str
    pipeline: str
    #: `source`, `deserialize`, `process:<name>` or `produce`.
    stage: str
    #: None for the task without a key.
    task: str | None
    #: None only where the record has no usable position (stage `source`).
    position: int | None
    #: How many times the operation was tried.
    attempt: int = 1
    #: When it is decided.
    at: datetime | None = None
    #: How long the operation took, waits between its attempts included: of a Python step, of
    #: `.produce` and of `.write`. Of a native step from the first failure on, where it was tried
    #: again; else None.
    took_ms: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp: datetime | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    #: All of the pipeline, in order; `stages[index]` is the one that failed.
    stages: Sequence[Stage] = ()
    index: int = 0
    #: The agent's settings as they were given; what looks secret by its name is not there.
    settings: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Name the record, and nothing of what is in it."""
        where = f"task {self.task!r}, position {self.position}"
        return f"{self.application}/{self.pipeline}: {self.stage} at {where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The source row that failed, before any step of the pipeline touched it."""

    key: str | None
    value: Any
    row: Mapping[str, Any]
    #: The bytes of a record from Kafka, untouched.
    raw_key: bytes | None = None
    raw_value: bytes | None = None


class Handler(Protocol):
    """Decides what becomes of a record that failed.

    It is asked on the driver, once per failed record, in (task, position) order. One that raises,
    or answers what is no answer, means FAIL. A handler with an attribute `answer` declares
    that it always gives this answer, and need not be asked: a million failed records then cost no
    round through Python.
    """

    def handle(
        self, context: ErrorContext, record: Record, exception: RecordError
    ) -> Answer | Response:
        """Return CONTINUE (leave the record out), RETRY, PAUSE (hold its task) or FAIL.

        RETRY is valid for a retriable failure while there is budget; else it is FAIL.
        """
        ...


@dataclass(frozen=True, slots=True)
class LogAndFail:
    """FAIL at the first failed record: nothing is skipped, the thread ends (the default)."""

    answer: Answer = Answer.FAIL

    def handle(self, context: ErrorContext, record: Record, exception: RecordError) -> Answer:
        """Return FAIL."""
        return self.answer


@dataclass(frozen=True, slots=True)
class LogAndContinue:
    """CONTINUE: leave the failed record out, as a dead letter where those are enabled."""

    answer: Answer = Answer.CONTINUE

    def handle(self, context: ErrorContext, record: Record, exception: RecordError) -> Answer:
        """Return CONTINUE."""
        return self.answer


@dataclass(frozen=True, slots=True)
class LogAndPause:
    """PAUSE: hold the failed record and all later ones of its task (KIP-990)."""

    answer: Answer = Answer.PAUSE

    def handle(self, context: ErrorContext, record: Record, exception: RecordError) -> Answer:
        """Return PAUSE."""
        return self.answer


@dataclass(frozen=True, slots=True)
class Always:
    """Answers what was said beforehand: by a person's command, or about the whole batch."""

    answer: Answer

    def handle(self, context: ErrorContext, record: Record, exception: RecordError) -> Answer:
        """Return the answer."""
        return self.answer


def constant_answer(handler: Handler | None) -> Answer | None:
    """Return the only answer of `handler` when it declares one, else None: it must be asked.

    What RETRY comes to depends on the record, so a handler that declares it is asked too.
    """
    declared = as_answer(getattr(handler, "answer", None))
    return None if declared is Answer.RETRY else declared


def check_handler(name: str, handler: Any) -> Handler:
    """Return `handler` when it is one, else raise InvalidValue naming the argument `name`."""
    answer = getattr(handler, "answer", None)
    declares_nonsense = answer is not None and as_answer(answer) is None
    if not callable(getattr(handler, "handle", None)) or declares_nonsense:
        allowed = "an object with handle(context, record, exception) -> Response, not a class"
        raise InvalidValue(name, handler, allowed)
    checked: Handler = handler
    return checked


def checked_answers(end: str, on_error: Handler | None, on: OnClass | None) -> Mapping[str, Answer]:
    """Return what `on` of an end of a pipeline says; raises InvalidValue for it and `on_error`."""
    if on_error is not None:
        check_handler(f"{end}: on_error", on_error)
    return checked_on(f"{end}: on", on)


def checked_on(name: str, on: OnClass | None) -> dict[str, Answer]:
    """Return the answers of `on` by full names, else raise InvalidValue naming the argument `name`.

    A text is the dotted name of a class (Python's or the JVM's), the bare name of one of Python's
    own, or a Spark error condition, which covers its sub-conditions.
    """
    found: dict[str, Answer] = {}
    for key, given in (on or {}).items():
        known, answer = _full_name(key), as_answer(given)
        if known is None or answer is None:
            raise InvalidValue(name, {key: given}, _ON_RULE)
        found[known] = answer
    return found


def _full_name(key: object) -> str | None:
    if isinstance(key, type) and issubclass(key, BaseException):
        return f"{key.__module__}.{key.__qualname__}"
    if not isinstance(key, str):
        return None
    own = getattr(builtins, key, None)
    if isinstance(own, type) and issubclass(own, BaseException):
        # `IOError` is another word for OSError.
        return f"builtins.{own.__qualname__}"
    try:
        [known] = class_names([key])
    except ValueError:
        return None
    return known


def ask(handler: Handler, context: ErrorContext, record: Record, exception: RecordError) -> object:
    """Return what the handler answers, or HandlerRaised: whether it is an answer, the rules say."""
    try:
        return handler.handle(context, record, exception)
    except BaseException as exc:  # SystemExit in a handler must not hang the query
        _log.exception("%s raised on %s", type(handler).__name__, context)
        return HandlerRaised(type(exc).__name__)

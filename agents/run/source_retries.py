"""A source that fails blames no record: it is tried again from the checkpoint, within budgets."""

from __future__ import annotations

import builtins
import random
import re
from collections.abc import Iterator
from datetime import datetime

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors.exceptions.captured import CapturedException

from arrester.agents.decisions.end_reasons import reason_of
from arrester.agents.decisions.rules import SelfHealing
from arrester.agents.failure_log import say
from arrester.agents.spark.errors import cause_of_jvm
from arrester.controlplane.domain.error_policy.classify import Kind, describe
from arrester.controlplane.domain.error_policy.exception_identity import Cause
from arrester.controlplane.domain.error_policy.log_levels import Saying
from arrester.controlplane.domain.error_policy.policy import Policy, StageKind
from arrester.controlplane.domain.error_policy.respond import FailedAttempt, TaskRun, respond
from arrester.controlplane.domain.error_policy.retry import Attempts, RetryAfter
from arrester.controlplane.domain.errors import ArresterError
from arrester.controlplane.domain.state.uncaught_policy import ReplacementPolicy, backoff_ms

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
_JAVA_CLASS = re.compile(r"((?:\w+\.)+\w+)(?::|$)")
_PYTHON_CLASS = re.compile(r"([A-Za-z_][\w.]*)(?::|$)")
_TRACE = "Traceback (most recent call last)"
_LINKS = 20


class SourceRetries:
    """The attempts at a run's source since a micro-batch, or held records, last went well.

    What the platform repairs by itself (a killed task, a fenced producer) begins again too, as a
    thread is replaced: with its waits, so often in an hour, whatever went well meanwhile (KIP-210).
    """

    def __init__(
        self,
        policy: Policy,
        pipeline: str,
        *,
        healing: ReplacementPolicy = ReplacementPolicy(),  # noqa: B008 (frozen)
    ) -> None:
        self._policy = policy
        self._pipeline = pipeline
        self._healing = healing
        #: When it began again so.
        self._healed_ms: list[int] = []
        self._made = 0
        self._started_ms = 0

    def went_well(self) -> None:
        """Begin to count anew: a micro-batch, or a chunk of held records, is done."""
        self._made = 0

    def wait_ms(self, exc: BaseException, *, at: datetime) -> int | None:
        """Return the wait before the query is started again, None when the run ends by `exc`."""
        now_ms = int(at.timestamp() * 1_000)
        if self._heals(exc):
            return self._healing_ms(exc, now_ms)
        if isinstance(exc, ArresterError) or not isinstance(exc, Exception):
            return None
        if not self._made:
            self._started_ms = now_ms
        self._made += 1
        attempts = Attempts(made=self._made, started_ms=self._started_ms, now_ms=now_ms)
        failure = FailedAttempt(
            stage=StageKind.SOURCE, cause=cause_of(exc), attempts=attempts, position=None
        )
        fate = respond(failure, self._policy, TaskRun(), chance=random.randrange)
        if not isinstance(fate, RetryAfter):
            return None
        what = f"the source of {self._pipeline} failed (attempt {self._made}): {reason_of(exc)}"
        say(Saying.SOURCE_RETRYING, what)
        return fate.wait_ms

    def _heals(self, exc: BaseException) -> bool:
        if isinstance(exc, SelfHealing):
            return True
        if isinstance(exc, ArresterError) or not isinstance(exc, Exception):
            return False
        return self._policy.table.classify(cause_of(exc)).kind is Kind.SELF_HEALING

    def _healing_ms(self, exc: BaseException, now_ms: int) -> int | None:
        window = self._healing.window_ms
        self._healed_ms = [each for each in self._healed_ms if now_ms - each < window]
        if len(self._healed_ms) >= self._healing.limit:
            return None
        self._healed_ms.append(now_ms)
        what = f"{self._pipeline} was ended by what heals itself: {reason_of(exc)}"
        say(Saying.SOURCE_RETRYING, what)
        return backoff_ms(len(self._healed_ms), self._healing)


def cause_of(exc: BaseException) -> Cause:
    """Return what is known of an exception of a query, or a job, the innermost cause first.

    Of an exception that ended a query Spark hands on no more than texts: the class in front of a
    message, the condition in brackets, the last line of a Python trace.
    """
    if isinstance(exc, Py4JJavaError):
        try:
            return cause_of_jvm(exc.java_exception)
        except Exception:  # the JVM is gone
            return describe(exc)
    chain = list(_chain(exc))[::-1]
    names = dict.fromkeys(name for link in chain for name in _names(link))
    conditions = [found for link in chain if (found := _condition(link)) is not None]
    return Cause(names=tuple(names), condition=conditions[0] if conditions else None)


def _chain(exc: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = exc
    for _ in range(_LINKS):
        if link is None:
            return
        yield link
        inner = link._cause if isinstance(link, CapturedException) else None
        link = inner or link.__cause__


def _names(exc: BaseException) -> Iterator[str]:
    if isinstance(exc, CapturedException):
        text = (exc._desc or "").strip()
        if _TRACE in text:
            yield from _of_trace(text)
        if exc._origin is not None:
            yield str(exc._origin.getClass().getName())
        elif found := _JAVA_CLASS.match(text):
            yield found[1]
    yield from describe(exc).names


def _of_trace(text: str) -> Iterator[str]:
    """Yield the class that the last trace in `text` ends with, and its bases where it is known."""
    for line in reversed(text.rpartition(_TRACE)[2].splitlines()):
        found = None if line.startswith((" ", "SQLSTATE")) else _PYTHON_CLASS.match(line)
        if found is None:
            continue
        kind = getattr(builtins, found[1], None)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            yield from (f"builtins.{base.__name__}" for base in kind.__mro__ if base is not object)
        else:
            yield found[1]
        return


def _condition(exc: BaseException) -> str | None:
    known = describe(exc).condition
    if known is not None or not isinstance(exc, CapturedException):
        return known
    found = _CONDITION.search((exc._desc or "").partition("\n")[0])
    return None if found is None else found[1]

"""Causes of exceptions that ended a streaming query.

Spark passes on texts only: the class before a message, the error condition in brackets, the last
line of a Python traceback.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator

from pyspark.errors.exceptions.captured import CapturedException

from arrester.agents.spark.errors import cause_of_java_error
from arrester.controlplane.domain.error_policy.classify import describe
from arrester.controlplane.domain.error_policy.exception_identity import Cause

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
_JAVA_CLASS = re.compile(r"((?:\w+\.)+\w+)(?::|$)")
_PYTHON_CLASS = re.compile(r"([A-Za-z_][\w.]*)(?::|$)")
_TRACE = "Traceback (most recent call last)"
_LINKS = 20


def cause_of(exc: BaseException) -> Cause:
    """Return the cause of a query's or a job's exception, the innermost cause first."""
    java = cause_of_java_error(exc)
    if java is not None:
        return java
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
    """Yield the class at the end of the last traceback in `text`, and its bases if known."""
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

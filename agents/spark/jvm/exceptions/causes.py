"""The causes of exceptions from Spark: the names and conditions under which tables list them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors.exceptions.captured import CapturedException

from arrester.agents.spark.jvm.exceptions.java_inspector import class_names
from arrester.agents.spark.worker_tracebacks import exception_traced_in
from arrester.domain.error_policy.classify import describe, unwrapped
from arrester.domain.error_policy.exception_identity import Cause

#: The longest chains of causes that are read.
_JAVA_CAUSES: Final = 10
_QUERY_CAUSES: Final = 20
#: How the message of a lost block begins. Before 4.0, this exception has no condition.
_BLOCK_LOST = "Checkpoint block rdd_"
_BLOCK_LOST_CONDITION = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
#: The only trace of the exception of a stage whose input was lost repeatedly.
_FAILED_REPEATEDLY = re.compile(
    r"maximum allowable number of times: \d+\. Most recent failure reason:\s*([\w.$]+)"
)
#: The texts of a query's exception.
_QUERY_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
_QUERY_CLASS = re.compile(r"((?:\w+\.)+\w+)(?::|$)")


def java_exception_of(exc: BaseException) -> Any | None:
    """Return the Java exception behind an exception on the driver; None: it is Python's own."""
    if isinstance(exc, CapturedException):
        if exc._origin is not None:
            return exc._origin
        # Before 4.2, PySpark drops the origin of a Python worker's exception, but not its context.
        exc = exc.__context__ or exc
    return exc.java_exception if isinstance(exc, Py4JJavaError) else None


def java_chain(throwable: Any) -> list[Any]:
    """Return a Java exception and its causes, the outermost first."""
    chain: list[Any] = []
    while throwable is not None and len(chain) < _JAVA_CAUSES:
        chain.append(throwable)
        throwable = throwable.getCause()
    return chain


def java_condition(throwable: Any) -> str | None:
    """Return the condition of a Java exception: that of Spark, or the SQLSTATE of a database."""
    # Before 4.0, Spark has only the second method.
    for method in ("getCondition", "getErrorClass", "getSQLState"):
        try:
            condition = getattr(throwable, method)()
        except Py4JError:  # it has no such method
            continue
        return None if condition is None else str(condition)
    return None


def cause_of_java(throwable: Any) -> Cause:
    """Return the cause of a Java exception, without wrappers."""
    causes = []
    for link in java_chain(throwable):
        link_class = link.getClass()
        names = class_names(str(link_class.getName()), link_class)
        causes.append(link_cause(names, java_condition(link), str(link.getMessage() or "")))
    return unwrapped(causes)


def link_cause(names: tuple[str, ...], condition: str | None, message: str) -> Cause:
    """Return the cause of one exception of a chain.

    If a stage failed repeatedly, the class of its last failure comes from Spark's text.
    """
    repeated = _FAILED_REPEATEDLY.search(message)
    if message.startswith(_BLOCK_LOST):
        condition = _BLOCK_LOST_CONDITION
    return Cause(names=names if repeated is None else (repeated[1], *names), condition=condition)


def cause_of(exc: BaseException) -> Cause:
    """Return the cause of a query's or a job's exception, the innermost cause first.

    Of a query, Spark passes on texts only: the class before a message, the error condition in
    brackets, the last line of a Python traceback.
    """
    if isinstance(exc, Py4JJavaError):
        try:
            return cause_of_java(exc.java_exception)
        except Exception:  # the JVM is gone
            return describe(exc)
    chain = list(_query_chain(exc))[::-1]
    names = dict.fromkeys(name for link in chain for name in _query_names(link))
    conditions = (condition for link in chain if (condition := _query_condition(link)) is not None)
    return Cause(names=tuple(names), condition=next(conditions, None))


def _query_chain(exc: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = exc
    for _ in range(_QUERY_CAUSES):
        if link is None:
            return
        yield link
        inner = _captured(link, "cause") if isinstance(link, CapturedException) else None
        link = inner or link.__cause__


def _description(exc: CapturedException) -> str:
    return str(_captured(exc, "desc") or "")


def _captured(exc: CapturedException, field: str) -> Any:
    """Return a field of what PySpark has captured. Before 4.0 their names have no underscore."""
    return getattr(exc, f"_{field}", None) or getattr(exc, field, None)


def _query_names(exc: BaseException) -> Iterator[str]:
    if isinstance(exc, CapturedException):
        text = _description(exc).strip()
        python = exception_traced_in(text)
        if python is not None:
            yield from python.cause.names
        if exc._origin is not None:
            yield str(exc._origin.getClass().getName())
        elif java_class := _QUERY_CLASS.match(text):
            yield java_class[1]
    yield from describe(exc).names


def _query_condition(exc: BaseException) -> str | None:
    condition = describe(exc).condition
    if condition is not None or not isinstance(exc, CapturedException):
        return condition
    in_brackets = _QUERY_CONDITION.search(_description(exc).partition("\n")[0])
    return None if in_brackets is None else in_brackets[1]

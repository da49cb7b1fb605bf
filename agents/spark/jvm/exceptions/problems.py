"""The problems of exceptions that jobs and calls of Spark raise on the driver."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from arrester.agents.spark.errors import Problem
from arrester.agents.spark.jvm.classes import jvm_class
from arrester.agents.spark.jvm.exceptions.causes import (
    cause_of_java,
    java_chain,
    java_condition,
    java_exception_of,
    link_cause,
)
from arrester.agents.spark.jvm.exceptions.java_inspector import (
    ExceptionLink,
    JavaException,
    java_inspector,
)
from arrester.agents.spark.worker_tracebacks import (
    MESSAGE_CHARACTERS,
    STACK_CHARACTERS,
    crash_in,
    exception_in,
    is_of_job,
)
from arrester.agents.worker.errors import class_name, error_fields
from arrester.domain.error_policy.classify import describe, unwrapped
from arrester.domain.error_policy.exception_identity import Cause, innermost
from arrester.domain.error_policy.failure_classes import WRAPPERS
from arrester.domain.error_policy.named_fields import named_column, named_field, names_field

#: What Spark raises on the driver. Only some of its Java exceptions get a class of PySpark.
SPARK_EXCEPTIONS: Final = (PySparkException, Py4JJavaError)
#: The condition of an exception that only names the file being written. Its cause has the reason.
_WRITE_FAILED: Final = "TASK_WRITE_FAILED"
#: Spark's advice about malformed records.
_ADVICE: Final = re.compile(
    " *To process malformed records as null result,"
    r" try setting the option 'mode' as 'PERMISSIVE'\."
)
#: The folder of the agent: stack traces begin after its frames.
_AGENT_FOLDER = str(Path(__file__).parents[3])
_QUERY_EXCEPTION: Final = "org.apache.spark.sql.streaming.StreamingQueryException"
#: Return the names of fields.
Fields = Callable[[], Container[str]]
_log = logging.getLogger("arrester.thread")


def problem_of_job(spark: SparkSession, exc: BaseException) -> Problem:
    """Return the problem of an exception from a job or from the author's code on the driver."""
    throwable = java_exception_of(exc)
    if throwable is None:
        return Problem(**error_fields(exc, below=_AGENT_FOLDER), cause=describe(exc))
    return _problem_of_job(spark, throwable)


def _problem_of_job(spark: SparkSession, throwable: Any) -> Problem:
    chain = java_chain(throwable)
    messages = [str(link.getMessage() or "") for link in chain]
    for message in messages:
        of_worker = crash_in(message) or exception_in(message)
        if of_worker is not None:
            return of_worker
    of_tasks = [
        link for link, message in zip(chain, messages, strict=True) if not is_of_job(message)
    ] or [throwable]
    reasons = [link for link in of_tasks if java_condition(link) != _WRITE_FAILED]
    if of_tasks[0] in reasons or not reasons:
        return problem_of_java(spark, of_tasks[0])
    problem, cause = problem_of_java(spark, reasons[0]), cause_of_java(of_tasks[0])
    return replace(problem, cause=cause, condition=problem.condition or cause.condition)


def problem_of(spark: SparkSession, exc: BaseException, *, attempts: int = 1) -> Problem:
    """Return the problem of an exception that a call on the driver raised.

    The cause of a Java exception includes its chain of causes, without wrappers.
    """
    text = error_fields(exc, below=_AGENT_FOLDER)
    cause, throwable = describe(exc), java_exception_of(exc)
    problem = Problem(
        exception_class=class_name(exc),
        message=text["message"],
        condition=cause.condition,
        stack=text["stack"],
        frame=text["frame"],
        cause=cause,
        attempts=attempts,
    )
    if throwable is None:
        return problem
    java = problem_of_java(spark, throwable)
    condition = java.condition or cause.condition
    names = dict.fromkeys((*java.cause.names, *cause.names))
    return replace(
        problem,
        exception_class=java.exception_class,
        # A py4j error's own message is only the called method and a stack trace.
        message=java.message if isinstance(exc, Py4JJavaError) else problem.message,
        condition=condition,
        stack=java.stack,
        cause=Cause(names=tuple(names), condition=java.cause.condition or condition),
    )


def problem_of_end(exc: BaseException) -> Problem:
    """Return the problem of an exception that ended a run or a driver.

    Without an answer of the JVM, which may be gone, it is what Python knows of the exception.
    """
    known = error_fields(exc, below=_AGENT_FOLDER)
    try:
        spark, throwable = SparkSession.getActiveSession(), java_exception_of(exc)
        if spark is not None and throwable is not None:
            problem = _problem_of_job(spark, _below_query(throwable))
            return replace(problem, frame=problem.frame or known["frame"])
    except Exception:  # the JVM is gone
        _log.debug("the JVM does not answer", exc_info=True)
    name, message = java_class_and_message(exc) or (known["exception_class"], known["message"])
    return Problem(**known | {"exception_class": name, "message": message}, cause=describe(exc))


def problem_of_query(spark: SparkSession, query: StreamingQuery) -> Problem | None:
    """Return the problem of the exception that ended a query; None: it ended without one."""
    # PySpark's own method leaves out the causes.
    found = query._jsq.exception()
    return _problem_of_job(spark, _below_query(found.get())) if found.isDefined() else None


def _below_query(throwable: Any) -> Any:
    """Return the cause of a query's exception, whose own message names only the query."""
    while throwable.getCause() and throwable.getClass().getName() == _QUERY_EXCEPTION:
        throwable = throwable.getCause()
    return throwable


def problem_of_java(spark: SparkSession, throwable: Any) -> Problem:
    """Return the problem of a Java exception: its class, its message and those of its causes."""
    jvm: Any = spark._jvm
    objects = jvm_class(jvm, "java.util.List").of(throwable).toArray()
    [problem] = problems_of_java(spark, objects)
    assert problem is not None
    return problem


def problems_of_java(
    spark: SparkSession, objects: Any, fields: Fields = frozenset
) -> list[Problem | None]:
    """Return the problem of each exception in a Java array, None for any other object.

    `fields` are those that a parser's exception may name: any other name may be of a record.
    """
    return [
        None if exception is None else _problem(exception, fields)
        for exception in java_inspector(spark).exceptions(objects)
    ]


def _problem(exception: JavaException, fields: Fields) -> Problem:
    chain = exception.chain
    causes = [link_cause(link.names, link.condition, link.message) for link in chain]
    inner = innermost(causes)
    return Problem(
        exception_class=chain[0].names[0],
        message=_message(chain)[:MESSAGE_CHARACTERS],
        condition=chain[0].condition,
        stack=exception.stack[:STACK_CHARACTERS],
        inner_class=None if inner is None else inner.names[0],
        inner_condition=None if inner is None else inner.condition,
        field=_field(chain, fields),
        cause=unwrapped(causes),
    )


def _field(chain: Sequence[ExceptionLink], fields: Fields) -> str | None:
    """Return the column or field that the exceptions of a chain name, the innermost one first."""
    for link in reversed(chain):
        name = named_column(link.condition, link.message)
        if name is None and names_field(link.condition):
            name = named_field(link.condition, link.message, fields())
        if name is not None:
            return name
    return None


def _message(chain: Sequence[ExceptionLink]) -> str:
    """Return the messages of a chain of causes.

    Spark's message about a malformed record has no reason, and advises a mode that guards refuse:
    the innermost cause comes first, without the advice.
    """
    first, advised = _ADVICE.subn("", chain[0].message)
    lines = [first, *(f"caused by {link.names[0]}: {link.message}" for link in chain[1:])]
    if advised and len(chain) > 1:
        lines = [lines[-1].removeprefix("caused by ").removesuffix(": "), *lines[:-1]]
    return "\n".join(lines)


def java_class_and_message(exc: BaseException) -> tuple[str, str] | None:
    """Return class and first line of the cause of an exception from the JVM or a Python worker;
    None for any other exception."""
    problem = _cause_without_trace(exc)
    if problem is None:
        return None
    return problem.exception_class, problem.message.strip().partition("\n")[0]


def java_line(exc: BaseException) -> str | None:
    """Return this cause in one line, with its SQLSTATE; None for any other exception."""
    problem = _cause_without_trace(exc)
    return None if problem is None else problem.line


def _cause_without_trace(exc: BaseException) -> Problem | None:
    """Return the cause of an exception from the JVM or a Python worker, without its trace."""
    if isinstance(exc, PythonException):
        return exception_in(str(exc))
    if not isinstance(exc, Py4JJavaError):
        return None
    try:
        links = [
            Problem(
                exception_class=str(link.getClass().getName()),
                message=str(link.getMessage() or ""),
                condition=java_condition(link),
            )
            for link in java_chain(exc.java_exception)
        ]
    except Exception:  # the JVM is gone
        return Problem(exception_class=class_name(exc), message=str(exc))
    for link in links:
        python = exception_in(link.message)
        if python is not None:
            return python
    return next((link for link in links if link.exception_class not in WRAPPERS), links[-1])

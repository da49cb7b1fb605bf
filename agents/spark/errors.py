"""Exceptions as text and as causes: from jobs, from calls on the driver, and from queries."""

from __future__ import annotations

import builtins
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from arrester.agents.spark.jvm import jvm_class
from arrester.agents.spark.jvm_exceptions import JavaException, class_names, java_inspector
from arrester.agents.worker.columns import ERROR_TYPE
from arrester.agents.worker.errors import class_name, error_fields
from arrester.agents.worker.progress import PROGRESS
from arrester.controlplane.domain.error_policy.classify import describe, unwrapped
from arrester.controlplane.domain.error_policy.exception_identity import Cause, known_as
from arrester.controlplane.domain.error_policy.failure_classes import WRAPPERS
from arrester.controlplane.domain.error_policy.policy import Policy
from arrester.controlplane.domain.errors import ArresterError

#: The reported class when a Python worker crashed without a message.
WORKER_CRASHED = "WorkerCrashed"
_MESSAGE_CHARACTERS = 4_000
_STACK_CHARACTERS = 16_000
#: The longest chains of causes that are read.
_CAUSES, _QUERY_CAUSES = 10, 20
_CRASHED = "Python worker exited unexpectedly"
_ABORTED = "Job aborted due to stage failure"
#: The condition that only names the file being written. The reason is in its cause.
_ONLY_WHERE = "TASK_WRITE_FAILED"
_TRACE = "Traceback (most recent call last):"
#: Spark appends it to Python's message.
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w{5}\s*$")
#: Before 4.0, this exception has no condition.
_BLOCK_LOST = "Checkpoint block rdd_"
#: A stage whose input was lost repeatedly leaves only this text.
_FAILED_AGAIN = re.compile(
    r"maximum allowable number of times: \d+\. Most recent failure reason:\s*([\w.$]+)"
)
#: The progress that a worker wrote down.
_AT = re.compile(rf"{PROGRESS} (\d+) ([01])")
_FRAME = re.compile(r'File "([^"]+)", line (\d+),? in (.+)')
#: The texts of a query's exception.
_QUERY_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
_QUERY_CLASS = re.compile(r"((?:\w+\.)+\w+)(?::|$)")
#: The cause of an exception that no table contains.
UNKNOWN_CAUSE = Cause(names=())
_OURS = str(Path(__file__).parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The exception of an operation, as text."""

    exception_class: str
    message: str
    condition: str | None = None
    stack: str | None = None
    frame: str | None = None
    #: The names under which the tables list it.
    cause: Cause = UNKNOWN_CAUSE
    attempts: int = 1
    #: From the start of the first attempt to the end of the last; None: not measured.
    took_ms: int | None = None

    @property
    def is_crash(self) -> bool:
        """Whether a Python worker crashed without a message."""
        return self.exception_class == WORKER_CRASHED


class StepFailed(ArresterError):
    """A step fails as a whole, without a failing record: the run ends."""

    def __init__(
        self,
        stage: str,
        problem: Problem,
        raised: BaseException,
        *,
        why: str,
        recordless: bool = False,
    ) -> None:
        super().__init__(f"{stage}: {problem.exception_class}: {problem.message} ({why})")
        self.stage = stage
        self.raised = raised
        #: The part that may leave the driver. A message may quote records, and without a known
        #: record no field can be redacted, unless the step failed without any record.
        self.reported = problem if recordless else replace(problem, message=why)
        first = f": {problem.message}".splitlines()[0] if recordless else ""
        self.reason = f"{stage}: {problem.exception_class}{first} ({why})"


# Exceptions of jobs and calls


def problem_of_job(spark: SparkSession, exc: BaseException) -> Problem:
    """Return the problem of an exception from a job or from the author's code on the driver."""
    throwable = java_exception_of(exc)
    if throwable is None:
        text = error_fields(exc)
        names = ("exception_class", "message", "stack", "frame")
        return Problem(**{name: text[name] for name in names}, cause=describe(exc))
    chain = _java_chain(throwable)
    for each in chain:
        message = str(each.getMessage() or "")
        if _CRASHED in message and _ABORTED not in message:
            return _crash(message)
        if _TRACE in message and _ABORTED not in message:
            return _python(message)
    inner = [each for each in chain if _ABORTED not in str(each.getMessage())] or [throwable]
    why = [each for each in inner if _java_condition(each) != _ONLY_WHERE]
    if inner[0] in why or not why:
        return problem_of_jvm(spark, inner[0])
    problem, cause = problem_of_jvm(spark, why[0]), _cause_of_jvm(inner[0])
    return replace(problem, cause=cause, condition=problem.condition or cause.condition)


def problem_of(spark: SparkSession, exc: BaseException, *, attempts: int = 1) -> Problem:
    """Return the problem of an exception that a call on the driver raised.

    The cause of a Java exception includes its chain of causes, without wrappers.
    """
    text = error_fields(exc, below=_OURS)
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
    java = problem_of_jvm(spark, throwable)
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


def java_exception_of(exc: BaseException) -> Any | None:
    """Return the Java exception behind an exception on the driver; None: it is Python's own."""
    if isinstance(exc, CapturedException):
        if exc._origin is not None:
            return exc._origin
        # Before 4.2, PySpark drops the origin of a Python worker's exception, but not its context.
        exc = exc.__context__ or exc
    return exc.java_exception if isinstance(exc, Py4JJavaError) else None


def failed_in_python(exc: BaseException) -> bool:
    """Whether a job failed in Python, by an exception or a crash."""
    text = str(exc)
    return _TRACE in text or _CRASHED in text


def rank_at_crash(exc: BaseException) -> tuple[int, bool] | None:
    """Return the rank of the row in a crashed worker, if the worker wrote it down.

    The second value is whether all rows before it are complete. Rank 0 means no row.
    """
    found = _AT.search(str(exc))
    return None if found is None else (int(found[1]), found[2] == "1")


def _crash(message: str) -> Problem:
    """Return the problem of a crash. With Python's fault handler its message has a stack trace."""
    trace = _AT.sub("", message.partition("): ")[2]).strip()
    first = trace.splitlines()[0] if trace else "it was killed, or ended by itself"
    return Problem(
        exception_class=WORKER_CRASHED,
        message=f"the Python worker crashed: {first}",
        stack=trace[:_STACK_CHARACTERS] or None,
        frame=_user_frame(_FRAME.findall(trace)),
        cause=Cause(names=(WORKER_CRASHED,)),
    )


def _python(message: str) -> Problem:
    """Return the problem of a Python exception from its traceback: the exception stayed on the
    executor."""
    trace = _SQLSTATE.sub("", message[message.index(_TRACE) :])
    lines = trace[trace.rindex(_TRACE) :].splitlines()[1:] or [""]
    at = next((n for n, line in enumerate(lines) if not line.startswith(" ")), len(lines) - 1)
    name, _, first = lines[at].partition(": ")
    return Problem(
        exception_class=name,
        message="\n".join([first, *lines[at + 1 :]]).strip()[:_MESSAGE_CHARACTERS],
        stack=trace[-_STACK_CHARACTERS:],
        frame=_user_frame(_FRAME.findall(trace)[::-1]),
        cause=Cause(names=_names_of(name)),
    )


def _names_of(name: str) -> tuple[str, ...]:
    """Return the names of a class and its bases, if the driver has the class."""
    module, _, short = name.rpartition(".")
    found = getattr(sys.modules.get(module, builtins) if module else builtins, short, None)
    if not isinstance(found, type):
        return (name,)
    bases = found.__mro__[:-1]
    return tuple(f"{base.__module__}.{base.__qualname__}" for base in bases)


def _user_frame(frames: list[tuple[str, str, str]]) -> str | None:
    """Return the innermost frame outside of installed packages."""
    libraries = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    outside = [
        each
        for each in frames
        if not each[0].startswith((*libraries, "<frozen")) and "pyspark.zip/" not in each[0]
    ]
    for path, line, name in [*outside, *frames][:1]:
        return f"{path.rpartition('/')[2]}:{line} in {name}"
    return None


# Java exceptions


def problem_of_jvm(spark: SparkSession, throwable: Any) -> Problem:
    """Return the problem of a Java exception: its class, its message and those of its causes."""
    jvm: Any = spark._jvm
    objects = jvm_class(jvm, "java.util.List").of(throwable).toArray()
    [problem] = problems_of_jvm(spark, objects)
    assert problem is not None
    return problem


def problems_of_jvm(spark: SparkSession, objects: Any) -> list[Problem | None]:
    """Return the problem of each exception in a Java array, None for any other object."""
    found = java_inspector(spark).exceptions(objects)
    return [None if each is None else _problem_of_java(each) for each in found]


def _problem_of_java(throwable: JavaException) -> Problem:
    chain = throwable.chain
    causes = [f"caused by {each.names[0]}: {each.message}" for each in chain[1:]]
    return Problem(
        exception_class=chain[0].names[0],
        message="\n".join([chain[0].message, *causes])[:_MESSAGE_CHARACTERS],
        condition=chain[0].condition,
        stack=throwable.stack[:_STACK_CHARACTERS],
        cause=unwrapped([_cause(e.names, e.condition, e.message) for e in chain]),
    )


def java_class_and_message(exc: BaseException) -> tuple[str, str] | None:
    """Return class and first line of the cause of a py4j error; None for any other exception."""
    if not isinstance(exc, Py4JJavaError):
        return None
    try:
        links = [
            (str(each.getClass().getName()), str(each.getMessage() or ""))
            for each in _java_chain(exc.java_exception)
        ]
    except Exception:  # the JVM is gone
        return class_name(exc), str(exc).partition("\n")[0]
    for _, text in links:
        if _TRACE in text and _ABORTED not in text:
            python = _python(text)
            return python.exception_class, python.message.partition("\n")[0]
    name, text = next((each for each in links if each[0] not in WRAPPERS), links[-1])
    return name, text.strip().partition("\n")[0]


def _cause_of_jvm(throwable: Any) -> Cause:
    """Return the cause of a Java exception, without wrappers."""
    chain = []
    for each in _java_chain(throwable):
        cls = each.getClass()
        names = class_names(str(cls.getName()), cls)
        chain.append(_cause(names, _java_condition(each), str(each.getMessage() or "")))
    return unwrapped(chain)


def _java_chain(throwable: Any) -> list[Any]:
    chain: list[Any] = []
    while throwable is not None and len(chain) < _CAUSES:
        chain.append(throwable)
        throwable = throwable.getCause()
    return chain


def _cause(names: tuple[str, ...], condition: str | None, message: str) -> Cause:
    """Return the cause of one link of a chain; for a stage that failed repeatedly, from Spark's
    text."""
    found = _FAILED_AGAIN.search(message)
    if message.startswith(_BLOCK_LOST):
        condition = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
    return Cause(names=names if found is None else (found[1], *names), condition=condition)


def _java_condition(throwable: Any) -> str | None:
    for method in ("getCondition", "getErrorClass"):  # before 4.0, it has the second name only
        try:
            condition = getattr(throwable, method)()
        except Py4JError:  # only Spark's own have one
            continue
        return None if condition is None else str(condition)
    return None


# Exceptions that ended a query


def cause_of(exc: BaseException) -> Cause:
    """Return the cause of a query's or a job's exception, the innermost cause first.

    Of a query Spark passes on texts only: the class before a message, the error condition in
    brackets, the last line of a Python traceback.
    """
    if isinstance(exc, Py4JJavaError):
        try:
            return _cause_of_jvm(exc.java_exception)
        except Exception:  # the JVM is gone
            return describe(exc)
    chain = list(_query_chain(exc))[::-1]
    names = dict.fromkeys(name for link in chain for name in _query_names(link))
    conditions = (found for link in chain if (found := _query_condition(link)) is not None)
    return Cause(names=tuple(names), condition=next(conditions, None))


def _query_chain(exc: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = exc
    for _ in range(_QUERY_CAUSES):
        if link is None:
            return
        yield link
        inner = link._cause if isinstance(link, CapturedException) else None
        link = inner or link.__cause__


def _query_names(exc: BaseException) -> Iterator[str]:
    if isinstance(exc, CapturedException):
        text = (exc._desc or "").strip()
        if _TRACE in text:
            yield from _python(text).cause.names
        if exc._origin is not None:
            yield str(exc._origin.getClass().getName())
        elif found := _QUERY_CLASS.match(text):
            yield found[1]
    yield from describe(exc).names


def _query_condition(exc: BaseException) -> str | None:
    known = describe(exc).condition
    if known is not None or not isinstance(exc, CapturedException):
        return known
    found = _QUERY_CONDITION.search((exc._desc or "").partition("\n")[0])
    return None if found is None else found[1]


# Problems as columns


def error_row(problem: Problem, policy: Policy | None = None) -> dict[str, Any]:
    """Return a problem as the error of a failed row. The policy's table gives its kind."""
    rulings = {} if policy is None else policy.table.classifications
    name = known_as(problem.cause, rulings)
    return {
        "exception_class": problem.exception_class,
        "message": problem.message,
        "stack": problem.stack,
        "frame": problem.frame,
        "names": list(problem.cause.names),
        "condition": problem.condition,
        "kind": None if name is None else rulings[name].kind.value,
        "attempts": problem.attempts,
        "took_ms": problem.took_ms,
    }


def error_column(row: Mapping[str, Any]) -> Column:
    """Return the column of an error row."""
    names = F.array(*[F.lit(name) for name in row["names"]])
    values = [
        (names if name == "names" else F.lit(value)).alias(name) for name, value in row.items()
    ]
    return F.struct(*values).cast(ERROR_TYPE)

"""Exceptions of an operation as text: Java exceptions, and what Spark's messages quote."""

from __future__ import annotations

import builtins
import re
import sys
import sysconfig
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from arrester.agents.executor.error_text import class_name, described
from arrester.agents.executor.progress import AT
from arrester.agents.spark.jvm_exceptions import JavaException, class_names, java_inspector
from arrester.controlplane.domain.error_policy.classify import describe, unwrapped
from arrester.controlplane.domain.error_policy.exception_identity import Cause
from arrester.controlplane.domain.error_policy.failure_classes import WRAPPERS
from arrester.controlplane.domain.errors import ArresterError

_MESSAGE_CHARACTERS = 4_000
_STACK_CHARACTERS = 16_000
_CAUSES = 10


#: The cause of an exception that no table contains.
UNKNOWN = Cause(names=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The exception of an operation, as text."""

    exception_class: str
    message: str
    condition: str | None = None
    stack: str | None = None
    frame: str | None = None
    #: The names under which the tables list it.
    cause: Cause = UNKNOWN
    attempts: int = 1
    #: From the start of the first attempt to the end of the last; None: not measured.
    took_ms: int | None = None

    @property
    def is_crash(self) -> bool:
        """Whether a Python worker crashed without a message."""
        return self.exception_class == WORKER_CRASHED


#: The reported class when a Python worker crashed without a message.
WORKER_CRASHED = "WorkerCrashed"
_CRASHED = "Python worker exited unexpectedly"
_ABORTED = "Job aborted due to stage failure"
#: The condition that only names the file being written. The reason is in its cause.
_ONLY_WHERE = "TASK_WRITE_FAILED"
_TRACE = "Traceback (most recent call last):"
#: Spark appends it to Python's message.
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w{5}\s*$")
#: A stage whose input was lost repeatedly leaves only this text.
_FAILED_AGAIN = re.compile(
    r"maximum allowable number of times: \d+\. Most recent failure reason:\s*([\w.$]+)"
)
#: The progress that a worker wrote down.
_AT = re.compile(rf"{AT} (\d+) ([01])")
_FRAME = re.compile(r'File "([^"]+)", line (\d+),? in (.+)')


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
        self.told = problem if recordless else replace(problem, message=why)
        said = f": {problem.message}".splitlines()[0] if recordless else ""
        self.reason = f"{stage}: {problem.exception_class}{said} ({why})"


def problem_of_job(spark: SparkSession, exc: BaseException) -> Problem:
    """Return the problem of an exception from a job or from the author's code on the driver."""
    thrown = thrown_of(exc)
    if thrown is None:
        said = described(exc)
        names = ("exception_class", "message", "stack", "frame")
        return Problem(**{name: said[name] for name in names}, cause=describe(exc))
    chain = _chain(thrown)
    for each in chain:
        message = str(each.getMessage() or "")
        if _CRASHED in message and _ABORTED not in message:
            return _crash(message)
        if _TRACE in message and _ABORTED not in message:
            return _python(message)
    inner = [each for each in chain if _ABORTED not in str(each.getMessage())] or [thrown]
    why = [each for each in inner if _condition(each) != _ONLY_WHERE]
    if inner[0] in why or not why:
        return problem_of_jvm(spark, inner[0])
    problem, cause = problem_of_jvm(spark, why[0]), cause_of_jvm(inner[0])
    return replace(problem, cause=cause, condition=problem.condition or cause.condition)


def thrown_of(exc: BaseException) -> Any | None:
    """Return the Java exception behind an exception on the driver; None: it is Python's own."""
    if isinstance(exc, Py4JJavaError):
        return exc.java_exception
    return exc._origin if isinstance(exc, CapturedException) else None


def is_of_python(exc: BaseException) -> bool:
    """Whether a job failed in Python, by an exception or a crash."""
    text = str(exc)
    return _TRACE in text or _CRASHED in text


def rank_at_work(exc: BaseException) -> tuple[int, bool] | None:
    """Return the rank of the row in a crashed worker, if the worker wrote it down.

    The second value tells whether all rows before it are complete. Rank 0 means no row.
    """
    said = _AT.search(str(exc))
    return None if said is None else (int(said[1]), said[2] == "1")


def _crash(message: str) -> Problem:
    """Return the problem of a crash. With Python's fault handler its message has a stack trace."""
    said = _AT.sub("", message.partition("): ")[2]).strip()
    first = said.splitlines()[0] if said else "it was killed, or ended by itself"
    return Problem(
        exception_class=WORKER_CRASHED,
        message=f"the Python worker crashed: {first}",
        stack=said[:_STACK_CHARACTERS] or None,
        frame=_user_frame(_FRAME.findall(said)),
        cause=Cause(names=(WORKER_CRASHED,)),
    )


def _python(message: str) -> Problem:
    """Return the problem of a Python exception from its traceback: the exception stayed on the
    executor."""
    trace = _SQLSTATE.sub("", message[message.index(_TRACE) :])
    lines = trace[trace.rindex(_TRACE) :].splitlines()[1:]
    said = next((n for n, line in enumerate(lines) if not line.startswith(" ")), len(lines) - 1)
    name, _, first = lines[said].partition(": ")
    return Problem(
        exception_class=name,
        message="\n".join([first, *lines[said + 1 :]]).strip()[:_MESSAGE_CHARACTERS],
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


def cause_of_jvm(thrown: Any) -> Cause:
    """Return the cause of a Java exception, without wrappers."""
    chain = []
    for each in _chain(thrown):
        cls = each.getClass()
        names = class_names(str(cls.getName()), cls)
        chain.append(_cause(names, _condition(each), str(each.getMessage() or "")))
    return unwrapped(chain)


def cause_of_java_error(exc: BaseException) -> Cause | None:
    """Return the cause in a py4j error; None for any other exception, or without a JVM."""
    if not isinstance(exc, Py4JJavaError):
        return None
    try:
        return cause_of_jvm(exc.java_exception)
    except Exception:  # the JVM is gone
        return describe(exc)


def java_class_and_message(exc: BaseException) -> tuple[str, str] | None:
    """Return class and first line of the cause of a py4j error; None for any other exception."""
    if not isinstance(exc, Py4JJavaError):
        return None
    try:
        links = [
            (str(each.getClass().getName()), str(each.getMessage() or ""))
            for each in _chain(exc.java_exception)
        ]
    except Exception:  # the JVM is gone
        return class_name(exc), str(exc).partition("\n")[0]
    for _, text in links:
        if _TRACE in text and _ABORTED not in text:
            python = _python(text)
            return python.exception_class, python.message.partition("\n")[0]
    name, text = next((each for each in links if each[0] not in WRAPPERS), links[-1])
    return name, text.strip().partition("\n")[0]


def problem_of_jvm(spark: SparkSession, thrown: Any) -> Problem:
    """Return the problem of a Java exception: its class, its message and those of its causes."""
    jvm: Any = spark._jvm
    [problem] = problems_of_jvm(spark, jvm.java.util.List.of(thrown).toArray())
    assert problem is not None
    return problem


def problems_of_jvm(spark: SparkSession, objects: Any) -> list[Problem | None]:
    """Return the problem of each exception in a Java array, None for any other object."""
    found = java_inspector(spark).thrown(objects)
    return [None if thrown is None else _problem(thrown) for thrown in found]


def _problem(thrown: JavaException) -> Problem:
    chain = thrown.chain
    causes = [f"caused by {each.names[0]}: {each.message}" for each in chain[1:]]
    return Problem(
        exception_class=chain[0].names[0],
        message="\n".join([chain[0].message, *causes])[:_MESSAGE_CHARACTERS],
        condition=chain[0].condition,
        stack=thrown.stack[:_STACK_CHARACTERS],
        cause=unwrapped([_cause(e.names, e.condition, e.message) for e in chain]),
    )


def _chain(thrown: Any) -> list[Any]:
    chain: list[Any] = []
    while thrown is not None and len(chain) < _CAUSES:
        chain.append(thrown)
        thrown = thrown.getCause()
    return chain


def _cause(names: tuple[str, ...], condition: str | None, message: str) -> Cause:
    """Return the cause of one link of a chain; for a stage that failed repeatedly, from Spark's
    text."""
    said = _FAILED_AGAIN.search(message)
    return Cause(names=names if said is None else (said[1], *names), condition=condition)


def _condition(thrown: Any) -> str | None:
    try:
        condition = thrown.getCondition()
    except Py4JError:  # only Spark's own have one
        return None
    return None if condition is None else str(condition)

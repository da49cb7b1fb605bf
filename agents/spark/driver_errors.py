"""Exceptions that the driver caught, from Python or the JVM, as the failure of a record."""

from __future__ import annotations

from pathlib import Path

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import SparkSession

from arrester.agents.executor.error_text import class_name, described
from arrester.agents.spark.errors import Problem, problem_of_jvm, thrown_of
from arrester.controlplane.domain.error_policy.classify import describe
from arrester.controlplane.domain.error_policy.exception_identity import Cause

_OURS = str(Path(__file__).parent)


def problem_of(spark: SparkSession, exc: BaseException, *, attempts: int = 1) -> Problem:
    """Return the problem of an exception that a call on the driver raised.

    The cause of a Java exception includes its chain of causes, without wrappers.
    """
    said = described(exc, ours=_OURS)
    name, cause, stack = class_name(exc), describe(exc), said["stack"]
    condition = cause.condition
    thrown, message = thrown_of(exc), said["message"]
    if thrown is not None:
        java = problem_of_jvm(spark, thrown)
        condition = java.condition or condition
        names = dict.fromkeys((*java.cause.names, *cause.names))
        cause = Cause(names=tuple(names), condition=java.cause.condition or condition)
        name, stack = java.exception_class, java.stack
        if isinstance(exc, Py4JJavaError):
            # Its own message is only the called method and a stack trace.
            message = java.message
    return Problem(
        exception_class=name,
        message=message,
        condition=condition,
        stack=stack,
        frame=said["frame"],
        cause=cause,
        attempts=attempts,
    )

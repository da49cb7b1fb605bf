"""The failures of framed values, and of the registry itself."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from arrester.agents.spark.errors import Problem
from arrester.domain.error_policy.exception_identity import describe


class InvalidFrame(ValueError):
    """The value does not begin with a zero byte and a schema id of four bytes."""


class UnknownSchemaId(LookupError):
    """The registry has no schema with the id of the value under the subject."""


class LogicalTypeMismatch(TypeError):
    """A field was written with another logical type than the result has, such as another scale."""


class SchemaRegistryUnavailable(ConnectionError):
    """The registry did not answer. It is retried like the source, and no record has failed."""


_FAILURES: Final = {
    each.__name__: each for each in (InvalidFrame, UnknownSchemaId, LogicalTypeMismatch)
}
_MARK: Final = "arrester.schema_registry."
#: Spark writes its condition before the message, and the SQLSTATE after it.
_MESSAGE = re.compile(rf"{re.escape(_MARK)}(\w+): (.*?)(?: SQLSTATE: \w+)?$", re.DOTALL)


def raised(failure: type[Exception], *text: Column) -> Column:
    """Return an expression that raises; `named` gives its exception the class of the failure."""
    return F.raise_error(F.concat(F.lit(f"{_MARK}{failure.__name__}: "), *text))


def named(problem: Problem) -> Problem:
    """Return a problem of an expression; one of `raised` gets its class and its own message."""
    found = _MESSAGE.search(problem.message)
    failure = None if found is None else _FAILURES.get(found[1])
    if found is None or failure is None:
        return problem
    cause = describe(failure())
    return replace(
        problem, exception_class=cause.names[0], message=found[2], condition=None, cause=cause
    )

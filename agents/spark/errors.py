"""A failure as text and as columns, and the end of a step that fails as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from arrester.agents.worker.columns import ERROR_TYPE
from arrester.domain.error_policy.classify import Kind
from arrester.domain.error_policy.exception_identity import Cause
from arrester.domain.error_policy.policy import Policy
from arrester.domain.errors import ArresterError

#: The reported class when a Python worker crashed without a message.
WORKER_CRASHED: Final = "WorkerCrashed"
#: More characters of a message's first line are not logged.
_LINE_CHARACTERS: Final = 500
#: The cause of an exception that no table contains.
UNKNOWN_CAUSE: Final = Cause(names=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The exception of an operation, as text."""

    exception_class: str
    message: str
    condition: str | None = None
    stack: str | None = None
    frame: str | None = None
    #: Class and condition of the innermost cause, if the exception only wraps it.
    inner_class: str | None = None
    inner_condition: str | None = None
    #: The field of the record, or the column of the table, that Spark or the database names.
    field: str | None = None
    #: The names under which the tables list it.
    cause: Cause = UNKNOWN_CAUSE
    attempts: int = 1
    #: From the start of the first attempt to the end of the last; None: not measured.
    took_ms: int | None = None

    @property
    def line(self) -> str:
        """The exception in one line: its class, condition and the first line of its message."""
        first = self.message.strip().partition("\n")[0][:_LINE_CHARACTERS]
        is_known = self.condition is None or self.condition in first
        name = self.exception_class if is_known else f"{self.exception_class} ({self.condition})"
        return f"{name}: {first}" if first else name

    @property
    def is_crash(self) -> bool:
        """Whether a Python worker crashed without a message."""
        return self.exception_class == WORKER_CRASHED


class StepFailed(ArresterError):
    """A step failed as a whole, without a failing record. It ends the run."""

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
        #: The failure in one line, for the log of the driver only.
        self.line = f"{stage}: {problem.line} ({why})"
        #: The part that may leave the driver. A message may quote records, and without a known
        #: record no field can be redacted, unless the step failed without any record.
        self.reported = problem if recordless else replace(problem, message=why, stack=None)
        first = f": {problem.message}".splitlines()[0] if recordless else ""
        self.reason = f"{stage}: {problem.exception_class}{first} ({why})"


def error_row(problem: Problem, policy: Policy | None = None) -> dict[str, Any]:
    """Return a problem as the error of a failed row. The policy's table gives its kind."""
    kind = Kind.OTHER if policy is None else policy.table.classify(problem.cause).kind
    return {
        "exception_class": problem.exception_class,
        "message": problem.message,
        "stack": problem.stack,
        "frame": problem.frame,
        "names": list(problem.cause.names),
        "condition": problem.condition,
        "kind": None if kind is Kind.OTHER else kind.value,
        "attempts": problem.attempts,
        "took_ms": problem.took_ms,
        "inner_class": problem.inner_class,
        "inner_condition": problem.inner_condition,
        "field": problem.field,
    }


def error_column(row: Mapping[str, Any]) -> Column:
    """Return the column of an error row."""
    names = F.array(*[F.lit(name) for name in row["names"]])
    values = [
        (names if name == "names" else F.lit(value)).alias(name) for name, value in row.items()
    ]
    return F.struct(*values).cast(ERROR_TYPE)

"""The common parts of events: numbers, times, runs, failures and bodies."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from arrester.domain.python_versions import StrEnum

#: Fits PostgreSQL's bigint and Spark's long.
Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
#: The position of a record in its task.
Position = Long
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
#: Always with a time zone; written in UTC.
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


#: The stage of a failure of the script outside a run.
DRIVER: Final = "driver"


class FinalResponse(StrEnum):
    """The response to a failed record after all attempts (KIP-210, KIP-990)."""

    CONTINUE = "CONTINUE"
    PAUSE = "PAUSE"
    FAIL = "FAIL"


class Data(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    # Event objects never contain themselves: the garbage collector need not visit thousands of
    # them.
    gc=False,
):
    """Base of transmitted objects. An unknown field is an error: the event is quarantined
    rather than lost."""


class Run(Data, frozen=True, kw_only=True):
    """One run of a pipeline; an older run changes no state."""

    pipeline: str
    checkpoint: str
    epoch: Count


class Failure(Data, frozen=True, kw_only=True):
    """Why an operation failed: the text for people, and the key of error groups."""

    #: `deserialize`, `process:<name>`, `produce` or `source`, with the step's name; `unknown` if
    #: executors were lost repeatedly and the stage cannot be determined; DRIVER if the script
    #: failed outside a run.
    stage: str
    exception_class: str
    #: Spark's error condition, if there is one.
    condition: str | None = None
    message: str
    fingerprint: str
    #: The top frame in the user's code, `file.py:12 in function`.
    frame: str | None = None
    attempts: Count = 1
    #: Class and condition of the innermost cause, if the exception only wraps it.
    inner_class: str | None = None
    inner_condition: str | None = None
    #: The field of the record, or the column of the table, that Spark or the database names.
    field: str | None = None


class SourceLines(Data, frozen=True, kw_only=True):
    """Lines of the author's code around the one that raised, which `Failure.frame` names."""

    #: The number of the first line.
    first: Count
    lines: tuple[str, ...]


class Body(Data, frozen=True, kw_only=True):
    """The large part of an event: stored separately, erasable, not used by the fold."""

    #: The source row as JSON, without the redacted fields.
    record: dict[str, Any] | None = None
    #: Names and paths of the fields that the agent redacted.
    redacted: tuple[str, ...] = ()
    #: The values of redacted fields, encrypted to the server (errors.redact.reveal).
    sealed: bytes | None = None
    #: Size of the record in bytes before it was cut; None if it is whole.
    cut_from: int | None = None
    #: The columns that native steps had made of the record, as the failed step received them. Not
    #: if those steps read a column with a redacted value.
    columns: dict[str, Any] | None = None
    #: The Python (and JVM) trace as text.
    stack: str | None = None
    #: Only in the first example of an error group in a run.
    source: SourceLines | None = None
    #: The body was erased (BodyErased); nothing else is set.
    erased: bool = False
    #: Why the server cannot read the body, which it has stored; nothing else is set.
    unreadable: str | None = None

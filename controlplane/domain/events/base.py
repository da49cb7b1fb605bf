"""What all events are made of: who says it, why an operation failed, the bulky part."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec

#: Fits PostgreSQL's bigint and Spark's long.
Position = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
#: Always aware; we write UTC.
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Response(StrEnum):
    """What was decided about a failed record (KIP-210, KIP-990)."""

    CONTINUE = "CONTINUE"
    PAUSE = "PAUSE"
    FAIL = "FAIL"


class Data(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    # Nothing that travels holds itself: the collector would look at each of thousands in vain.
    gc=False,
):
    """Base of what travels. A field we do not know is an error: better kept aside than lost."""


class Run(Data, frozen=True, kw_only=True):
    """One run of a pipeline: who says it, for the rule that an older run changes no state."""

    pipeline: str
    checkpoint: str
    epoch: Count


class Failure(Data, frozen=True, kw_only=True):
    """Why an operation failed: what people read first, and what groups are made of."""

    #: `deserialize`, `process:<name>`, `produce` or `source`, with the step's name; `unknown` where
    #: executors ended, one after the other, and nobody can say in which.
    stage: str
    exception_class: str
    #: Spark's error condition, where there is one.
    condition: str | None = None
    message: str
    fingerprint: str
    #: The top frame in the user's code, `file.py:12 in function`.
    frame: str | None = None
    attempts: Count = 1


class Body(Data, frozen=True, kw_only=True):
    """The bulky part of an event: kept apart, erasable, never read by the fold."""

    #: The source row, JSON-able, without the redacted fields.
    record: dict[str, Any] | None = None
    #: Names and paths that were dropped on the agent.
    redacted: tuple[str, ...] = ()
    #: Size in bytes of the record before it was cut; None when it is whole.
    cut_from: int | None = None
    #: The Python (and JVM) trace as text.
    stack: str | None = None
    #: What stood here was erased (BodyErased); nothing else is set then.
    erased: bool = False

"""Ids of traces and spans, derived from what events and commands name.

Agent and server derive the same ids, so the events and commands are the context that travels: no
message has a further field.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from arrester.domain.events import Run
from arrester.domain.python_versions import UTC


class SpanId(NamedTuple):
    """A span: the id of its trace, and its own."""

    trace: int
    span: int

    @property
    def trace_hex(self) -> str:
        """The id of the trace, as W3C's `traceparent` and the pages of trace stores have it."""
        return f"{self.trace:032x}"


@lru_cache(maxsize=1_000)
def of_decision(application: str, run: Run, at: datetime) -> SpanId:
    """Return the span of a decision about failed records: all its events have this time."""
    name = _decision(application, run, at)
    return SpanId(_number(16, name), _number(8, name))


def of_stop(
    application: str, run: Run, at: datetime, *, digest: str, position: int | None
) -> SpanId:
    """Return the span of a task that stopped at a failed record.

    All stops at a record are one trace. Without a position it is that of the decision.
    """
    decision = _decision(application, run, at)
    trace = _number(16, decision if position is None else _record(digest, position))
    return SpanId(trace, _number(8, f"stop {digest} {decision}"))


def of_command(command: UUID, *, digest: str | None, position: int | None) -> SpanId:
    """Return the span of a command: in the trace of the record that stopped its task, if it has
    one."""
    name = f"command {command}"
    is_about_record = digest is not None and position is not None
    trace = _record(digest, position) if is_about_record else name
    return SpanId(_number(16, trace), _number(8, name))


def child_of(parent: SpanId, name: str) -> SpanId:
    """Return the span of one part of another one."""
    return SpanId(parent.trace, _number(8, f"{parent.span} {name}"))


def _decision(application: str, run: Run, at: datetime) -> str:
    moment = at.astimezone(UTC).isoformat(timespec="microseconds")
    return f"decision {application} {run.pipeline} {run.checkpoint} {moment}"


def _record(digest: str | None, position: int | None) -> str:
    return f"record {digest} {position}"


def _number(size: int, name: str) -> int:
    """Return a hash of the name that is not 0, which is no valid id."""
    digest = hashlib.sha256(f"arrester {size} {name}".encode()).digest()
    return int.from_bytes(digest[:size], "big") or 1

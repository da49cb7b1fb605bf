"""Check the envelope of an event: an incomplete one is quarantined."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import get_args

from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.domain.events import (
    Event,
    InstanceEvent,
    StateReported,
    TaskEvent,
    ThreadEvent,
)
from arrester.controlplane.domain.identity.names import check_name
from arrester.controlplane.domain.wire.failure_columns import FailedRecords

#: The newest version of the events that this code understands.
SCHEMA_VERSION = 1
#: Checkpoint ids and fingerprints are keys: a text that could be cut or altered is not a key.
TOKEN = re.compile(r"[!-~]{1,200}")
#: A longer text is not a token, and not kept whole.
_LIMIT = 300
_NEEDS_RUN = frozenset((*get_args(TaskEvent), *get_args(ThreadEvent), StateReported))
_NEEDS_INSTANCE = frozenset(get_args(InstanceEvent) + get_args(ThreadEvent))


def incomplete(event: Event) -> str | None:
    """Return what the envelope lacks for its event, or None."""
    data, run = event.data, event.run
    if event.schema_version != SCHEMA_VERSION:
        return f"schema version {event.schema_version}; this server knows {SCHEMA_VERSION}"
    if run is None and type(data) in _NEEDS_RUN:
        return f"{event.type} without a run"
    if event.instance is None and type(data) in _NEEDS_INSTANCE:
        return f"{event.type} without an instance"
    if run is not None and (wrong := _invalid_run(run.pipeline[:_LIMIT], run.checkpoint[:_LIMIT])):
        return wrong
    if isinstance(data, StateReported):
        failures = (each.failure for each in data.tasks if each.failure is not None)
        return next(
            filter(None, (_invalid_fingerprint(each.fingerprint[:_LIMIT]) for each in failures)),
            None,
        )
    failure = getattr(data, "failure", None)
    return None if failure is None else _invalid_fingerprint(failure.fingerprint[:_LIMIT])


@lru_cache(maxsize=10_000)
def _invalid_fingerprint(fingerprint: str) -> str | None:
    if TOKEN.fullmatch(fingerprint) is None:
        return f"fingerprint {fingerprint[:200]!r} is not printable ASCII"
    return None


@lru_cache(maxsize=1_000)
def _invalid_run(pipeline: str, checkpoint: str) -> str | None:
    try:
        check_name("pipeline", pipeline)
    except InvalidValue as exc:
        return str(exc)
    if TOKEN.fullmatch(checkpoint) is None:
        return f"checkpoint {checkpoint[:200]!r} is not printable ASCII"
    return None


def is_complete(failed: FailedRecords) -> bool:
    """Return whether all events of the columns are complete."""
    run = failed.run
    return (
        failed.is_consistent()
        and _invalid_run(run.pipeline[:_LIMIT], run.checkpoint[:_LIMIT]) is None
        and max(map(len, failed.fingerprints)) < _LIMIT
        and not any(map(_invalid_fingerprint, failed.fingerprints))
    )

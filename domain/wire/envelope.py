"""Check the envelope of an event: an incomplete one is quarantined."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain
from typing import get_args

from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    Event,
    Failure,
    FlowMeasured,
    InstanceEvent,
    PipelineDescribed,
    RecordsDeadLettered,
    RecordsRedriven,
    Run,
    StateReported,
    TaskEvent,
    ThreadEvent,
)
from arrester.domain.identity.names import check_name
from arrester.domain.wire.dead_letter_columns import dead_letters_of, redriven_ids
from arrester.domain.wire.failure_columns import FailedRecords
from arrester.domain.wire.limits import TEXT_CHARACTERS

#: The newest version of the events that this code understands.
SCHEMA_VERSION = 1
#: Checkpoint ids and fingerprints are keys: a text that could be cut or altered is not a key.
TOKEN = re.compile(r"[!-~]{1,200}")
#: A longer text is not a token, and not kept whole.
_LIMIT = 300
_NEEDS_RUN = frozenset((*get_args(TaskEvent), *get_args(ThreadEvent), StateReported, FlowMeasured))
_NEEDS_INSTANCE = frozenset((*get_args(InstanceEvent), *get_args(ThreadEvent), FlowMeasured))


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
    if isinstance(data, RecordsDeadLettered) and run is not None:
        return _invalid_dead_letters(data, run)
    if isinstance(data, RecordsRedriven) and run is not None:
        return _invalid_redriven(data, run)
    if isinstance(data, PipelineDescribed) and data.outage_share is not None:
        # Not a number and infinity are no JSON.
        return None if 0 <= data.outage_share <= 1 else f"an outage share of {data.outage_share}"
    parts = data.tasks if isinstance(data, StateReported) else (data,)
    failures = [getattr(each, "failure", None) for each in parts]
    wrongs = (_invalid_failure(each) for each in failures if each is not None)
    return next(filter(None, wrongs), None)


def _invalid_redriven(data: RecordsRedriven, run: Run) -> str | None:
    try:
        redriven_ids("", run, data)
    except ValueError as exc:
        return f"redriven dead letters: {exc}"
    return None


def _invalid_dead_letters(data: RecordsDeadLettered, run: Run) -> str | None:
    if data.records is None:
        return None
    try:
        # The application is a part of the ids, which are not used here.
        dead_letters_of("", run, data)
    except ValueError as exc:
        return f"columns of dead letters: {exc}"
    wrongs = (_invalid_fingerprint(each[:_LIMIT]) for each in data.records.fingerprints)
    return next(filter(None, wrongs), None)


def _invalid_failure(failure: Failure) -> str | None:
    texts = (
        failure.stage,
        failure.exception_class,
        failure.condition,
        failure.message,
        failure.frame,
        failure.inner_class,
        failure.inner_condition,
        failure.field,
    )
    longest = max(len(text or "") for text in texts)
    if longest > TEXT_CHARACTERS:
        return (
            f"a failure has a text of {longest:,} characters;"
            f" at most {TEXT_CHARACTERS:,} are allowed"
        )
    return _invalid_fingerprint(failure.fingerprint[:_LIMIT])


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
    run, kinds = failed.run, chain.from_iterable(failed.kinds)
    texts = chain(failed.messages, failed.frames, failed.tasks, failed.keys, kinds)
    return (
        failed.is_consistent()
        and _invalid_run(run.pipeline[:_LIMIT], run.checkpoint[:_LIMIT]) is None
        and max(map(len, filter(None, texts)), default=0) <= TEXT_CHARACTERS
        and max(map(len, failed.fingerprints)) < _LIMIT
        and not any(map(_invalid_fingerprint, failed.fingerprints))
    )

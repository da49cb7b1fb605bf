"""Fold a stream of Redis into the log and the views: whole batches, in order, exactly once.

The stream's row in PostgreSQL is the position. A batch is confirmed to its sender, and deleted from
Redis, after the commit of its events; until then it can be read again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import get_args
from uuid import UUID

import msgspec
from django.db import transaction

from arrester.controlplane import command_traces, signing, store
from arrester.controlplane.history import state_at_position
from arrester.controlplane.ingest import command_durations, log_gaps
from arrester.controlplane.ingest.fold_entries import StreamAdvanced, fold, order
from arrester.controlplane.outbound import command_outbox
from arrester.controlplane.redis import event_streams, metric_sums, redis_client
from arrester.controlplane.redis.redis_client import StreamEntry
from arrester.controlplane.store.stream_entry import DecodedEntry, read_entry
from arrester.domain.events import (
    ApplicationEvent,
    CommandEvent,
    InstanceStarted,
    StoredEvent,
)
from arrester.domain.identity import redis_keys
from arrester.domain.identity.names import check_name
from arrester.domain.wire.failure_columns import Stored, last, size

log = logging.getLogger(__name__)
#: Large enough for a cheap transaction, small enough to be visible soon.
EVENTS_PER_READ = 30_000
#: The most bytes of events without bodies, unpacked, of one transaction; a larger batch is alone in
#: its own. As objects they take up to 25 times as much memory.
UNPACKED_PER_READ = 8 * 2**20
#: One transaction takes the usual number of batches; their size is known from the last read.
FIRST_ENTRIES, MAX_ENTRIES = 300, 512
#: These events are relayed at once: an instance that starts must learn soon that the application is
#: LATCHED.
_RELAYED = frozenset((*get_args(CommandEvent), *get_args(ApplicationEvent), InstanceStarted))

#: The turn of an application before others have theirs.
BUDGET_SECONDS = 1.0
#: A transaction that takes longer is followed by a smaller one.
FOLD_SECONDS = 1.0
#: Another holder of a stream's lock is waited for so long; then others have a turn.
LOCK_SECONDS = 1.0
#: A fold without a statement for so long is suspended; PostgreSQL's limit for idle transactions.
STUCK_SECONDS = 300.0


class StreamFold(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one fold of a stream."""

    events: int = 0
    #: Entries still wait; the time was over.
    more: bool = False
    #: Another worker has the stream; nothing was done.
    busy: bool = False


def fold_stream(
    application: str,
    *,
    budget_seconds: float = BUDGET_SECONDS,
    request_snapshot: Callable[[str], None] | None = None,
) -> StreamFold:
    """Fold the waiting entries of the application's stream, for about `budget_seconds` at most.

    Meanwhile the pending-fold key exists. Without `request_snapshot` snapshots are made here.
    """
    check_name("application", application)
    deadline = time.monotonic() + budget_seconds
    try:
        with store.waiting_at_most(LOCK_SECONDS):
            return _fold_stream(application, deadline, request_snapshot)
    except store.StreamLocked:
        log.warning("%s: its stream is locked; its events follow", application)
        return StreamFold(more=True)
    except Exception:
        metric_sums.count(metric_sums.FOLD_ERRORS)
        raise
    finally:
        metric_sums.flush()


def _fold_stream(
    application: str, deadline: float, request_snapshot: Callable[[str], None] | None
) -> StreamFold:
    events = 0
    while True:
        with store.try_fold_lock(application) as acquired:
            if not acquired:
                if store.terminate_stuck_fold(application, seconds=STUCK_SECONDS):
                    log.warning("%s: ended a fold without activity", application)
                return StreamFold(events=events, busy=True)
            # Opened under the lock: it waits for a transaction that has changed the stream's row.
            store.open_stream(application)
            folded, more = _fold_until(deadline, application, request_snapshot)
            events += folded
        if more:
            return StreamFold(events=events, more=True)
        # Other workers may have skipped this stream while we held the lock. Delete the
        # pending-fold key, then check the stream once more.
        redis_client.client().delete(redis_keys.pending_fold(application))
        if not redis_client.client().xlen(redis_keys.events(application)):
            return StreamFold(events=events)


def _fold_until(
    deadline: float,
    application: str,
    request_snapshot: Callable[[str], None] | None,
) -> tuple[int, bool]:
    """Fold until nothing waits or the time is over; return the number of events, and whether
    more wait."""
    redis, events, count, due = redis_client.client(), 0, FIRST_ENTRIES, 0
    redis.set(redis_keys.pending_fold(application), 1, ex=redis_keys.PENDING_FOLD_SECONDS)
    stream = redis_keys.events(application)
    # From the start, not from the cursor: earlier entries were left by a crash between commit and
    # confirmation, or by a Redis whose clock went back. Their batch ids identify them.
    raw_entries = event_streams.decoded(event_streams.read(redis, stream, count=count))
    _reset_cursor_after_loss(redis, application, raw_entries)
    seen = store.read_stream(application)
    log_gaps.notice(redis, seen)
    # A read of large entries may take longer than the time: what was read is folded, otherwise the
    # next fold would read the same again.
    while raw_entries:
        entries = _read(application, raw_entries)
        before, began, began_at = seen.sequence, time.monotonic(), datetime.now(UTC)
        try:
            seen, stored = fold(seen, entries)
        except StreamAdvanced:
            seen = store.read_stream(application)
            raw_entries = event_streams.decoded(event_streams.read(redis, stream, count=count))
            if time.monotonic() >= deadline:
                return events, True
            continue
        metric_sums.observe(metric_sums.FOLD, seconds=time.monotonic() - began)
        command_durations.observe(application, stored)
        events += sum(last(each) - each.sequence + 1 for each in stored)
        packed = sum(size(entry.events) for entry in entries)
        share = min(
            EVENTS_PER_READ / max(packed, 1), FOLD_SECONDS / (time.monotonic() - began or 1.0)
        )
        count = max(1, min(int(len(entries) * share), count * 2, MAX_ENTRIES))
        raw_entries = _confirm(redis, seen, entries, count=count)
        command_traces.folded(stored, began=began_at)
        _relay_if_needed(application, stored)
        if stored and state_at_position.may_be_due(before, seen.sequence) and seen.sequence >= due:
            due = state_at_position.ensure_snapshot(
                application, seen.sequence, ask=request_snapshot
            )
        if time.monotonic() >= deadline:
            return events, bool(raw_entries)
    return events, False


def _read(application: str, raw_entries: Iterable[StreamEntry]) -> list[DecodedEntry]:
    """Return the entries of one transaction, in order."""
    entries: list[DecodedEntry] = []
    events = unpacked = 0
    for id, fields in raw_entries:
        entries.append(read_entry(application, id, fields))
        events += size(entries[-1].events) + len(entries[-1].quarantined)
        unpacked += entries[-1].unpacked
        if events >= EVENTS_PER_READ or unpacked >= UNPACKED_PER_READ:
            break
    return entries


def _reset_cursor_after_loss(
    redis: redis_client.Redis, application: str, raw_entries: Sequence[StreamEntry]
) -> None:
    """Begin a new generation if Redis has lost the stream of the cursor, also below its entries.

    Agents send unconfirmed batches again; folded ones are recognised by their ids.
    """
    seen = store.read_stream(application)
    if seen.cursor == store.BEGINNING:
        return
    if raw_entries and order(raw_entries[-1][0]) >= order(seen.cursor):
        return
    last = event_streams.last_id(redis, redis_keys.events(application))
    if last is not None and order(last) >= order(seen.cursor):
        return
    with transaction.atomic(durable=True):
        stream = store.lock(application)
        if stream == seen:
            store.reset_cursor(stream)
            log.warning("%s: Redis lost the stream after %s", application, seen.cursor)


def _confirm(
    redis: redis_client.Redis,
    stream: store.LogStream,
    entries: Sequence[DecodedEntry],
    *,
    count: int,
) -> list[StreamEntry]:
    """Confirm committed batches to their senders and delete them from Redis in one step; return
    the entries that follow."""
    application = stream.application
    members: dict[str, list[str | bytes]] = {}
    signed: dict[UUID, list[UUID]] = {}
    for entry in entries:
        if entry.spool is not None and entry.batch is not None:
            key = redis_keys.confirmed(application, entry.spool)
            members.setdefault(key, []).append(str(entry.batch))
            if entry.signed:
                signed.setdefault(entry.spool, []).append(entry.batch)
    for spool, batches in signed.items():
        key = redis_keys.signed_confirmations(application, spool)
        members[key] = [signing.sign_confirmation(application, spool, batches)]
    with redis.pipeline(transaction=True) as pipeline:
        for key, values in members.items():
            pipeline.sadd(key, *values)
            pipeline.expire(key, redis_keys.CONFIRMED_SECONDS)
        log_gaps.record_end(pipeline, stream)
        read = [(entry.id, entry.fields) for entry in entries]
        event_streams.delete(pipeline, redis_keys.events(application), read)
        pipeline.set(redis_keys.pending_fold(application), 1, ex=redis_keys.PENDING_FOLD_SECONDS)
        begin = f"({entries[-1].id}"
        event_streams.read(pipeline, redis_keys.events(application), begin=begin, count=count)
        *_, raw_entries = pipeline.execute()
    return event_streams.decoded(raw_entries)


def _relay_if_needed(application: str, stored: Iterable[Stored]) -> None:
    """Relay at once if events close a command, change the application or begin an instance."""
    events = (each for each in stored if isinstance(each, StoredEvent))
    if not _RELAYED.isdisjoint({type(each.event.data) for each in events}):
        command_outbox.relay(application)

"""From Redis into the log: whole batches, in order, exactly once, whatever dies when.

The stream's row in PostgreSQL decides what is true. A batch is confirmed to its sender, and taken
out of Redis, after the transaction that holds its events; until then it can be read again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import get_args
from uuid import UUID

import msgspec
from django.db import transaction

from arrester.controlplane import redis_client, store
from arrester.controlplane.domain.events import (
    ApplicationEvent,
    CommandEvent,
    InstanceStarted,
    StoredEvent,
)
from arrester.controlplane.domain.identity import redis_keys
from arrester.controlplane.domain.identity.names import check_name
from arrester.controlplane.domain.wire.failure_columns import Stored, last, size
from arrester.controlplane.gc_pause import not_collecting
from arrester.controlplane.history import state_at_position
from arrester.controlplane.ingest.fold_entries import Moved, fold, order
from arrester.controlplane.outbound import command_outbox
from arrester.controlplane.store.stream_entry import Entry, read_entry

log = logging.getLogger(__name__)
CONFIRMED_SECONDS = 7 * 24 * 3600
#: A transaction is long enough to be cheap and short enough to be seen at once.
EVENTS_PER_READ = 30_000
#: As many batches as agents usually send make one; how large they are is known from what was read.
FIRST_ENTRIES, MOST_ENTRIES = 300, 512
#: How often, and how long each time, a drain waits for more before it gives the stream back: who
#: sends all the time is not asked for anew each time, and who else needs the process waits for no
#: longer than one of them.
LINGER_LOOKS, LINGER_MILLISECONDS = 5, 10
#: What is answered by a relay at once: who starts has to hear soon if the application is LATCHED.
_RELAYED = frozenset((*get_args(CommandEvent), *get_args(ApplicationEvent), InstanceStarted))

#: Between two statements a fold computes for a second or two, however much it folds. Where a
#: machine is so slow that it takes longer, doubled each time that one is cut off, so often at most.
STUCK_SECONDS, MOST_DOUBLINGS = 30.0, 6


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """What one drain did."""

    events: int = 0
    #: Entries still wait; the time was over.
    more: bool = False
    #: Another worker has the stream; nothing was done.
    busy: bool = False


def drain(
    application: str,
    *,
    budget_seconds: float = 5.0,
    may_linger: Callable[[], bool] = lambda: False,
    ask_keeper: Callable[[str], None] | None = None,
) -> Drained:
    """Fold what waits in the application's stream, for at most about `budget_seconds`.

    When all is folded and `may_linger` says so, it waits a moment for what comes next. While it
    works nobody has to ask for it: the stream's mark, `keys.woken`, stays. States are kept by who
    is asked by `ask_keeper`, or here.
    """
    check_name("application", application)
    deadline = time.monotonic() + budget_seconds
    events = 0
    while True:
        with store.try_fold_lock(application) as mine, not_collecting():
            if not mine:
                _cut_off_stuck(application)
                return Drained(events=events, busy=True)
            # Not before: it waits for a transaction that has changed the stream's row.
            store.open_stream(application)
            folded, more = _drain_until(deadline, application, may_linger, ask_keeper)
            events += folded
        if more:
            return Drained(events=events, more=True)
        # Whoever was refused the lock while we held it, or did not ask since the mark was there,
        # has gone: take the mark away, then look again what came meanwhile.
        redis_client.client().delete(redis_keys.woken(application))
        if not redis_client.client().xlen(redis_keys.events(application)):
            return Drained(events=events)


def _cut_off_stuck(application: str) -> None:
    """Cut off who folds the stream but seems suspended; be the more patient the more often it was.

    PostgreSQL cannot tell a process that is suspended from one that computes: who only computes is
    given twice the time when it tries again, so that it gets through.
    """
    redis, key = redis_client.client(), redis_keys.cut_off(application)
    before = min(int(redis.get(key) or 0), MOST_DOUBLINGS)
    seconds = STUCK_SECONDS * 2**before
    if store.terminate_stuck_fold(application, seconds=seconds):
        redis.set(key, before + 1, ex=redis_keys.CUT_OFF_SECONDS)
        log.warning("%s: who folded it said nothing for %d s: cut off", application, seconds)


def _drain_until(
    deadline: float,
    application: str,
    may_linger: Callable[[], bool],
    ask_keeper: Callable[[str], None] | None,
) -> tuple[int, bool]:
    """Fold until nothing waits or the time is over; return events folded, and whether more wait."""
    redis, events, count, due = redis_client.client(), 0, FIRST_ENTRIES, 0
    redis.set(redis_keys.woken(application), 1, ex=redis_keys.WOKEN_SECONDS)
    _begin_again_after_loss(redis, application)
    stream = redis_keys.events(application)
    seen = store.read_stream(application)
    # From the very beginning, not from the cursor: entries below it are leftovers of a crash
    # between commit and confirmation, or of a Redis whose clock went back. Both are told apart by
    # their batch ids.
    newest, found = "", redis_client.entries(redis, stream, count=count)
    while time.monotonic() < deadline:
        if not found and newest:
            found = _what_comes(redis, stream, after=newest, count=count, may_linger=may_linger)
        if not found:
            return events, False
        entries = _read(application, found)
        before = seen.sequence
        try:
            seen, stored = fold(seen, entries)
        except Moved:
            seen = store.read_stream(application)
            newest, found = "", redis_client.entries(redis, stream, count=count)
            continue
        events += sum(last(each) - each.sequence + 1 for each in stored)
        newest = entries[-1].id
        packed = sum(size(entry.events) for entry in entries)
        fitting = len(entries) * EVENTS_PER_READ // max(packed, 1)
        count = max(1, min(fitting, count * 2, MOST_ENTRIES))
        found = _confirm(redis, application, entries, count=count)
        _tell(application, stored)
        if stored and state_at_position.may_be_due(before, seen.sequence) and seen.sequence >= due:
            due = state_at_position.have_kept(application, seen.sequence, ask=ask_keeper)
    return events, True


def _read(application: str, found: Iterable[redis_client.Found]) -> list[Entry]:
    """Return entries in their order, as many as one transaction takes."""
    entries: list[Entry] = []
    events = 0
    for id, fields in found:
        entries.append(read_entry(application, id, fields))
        events += size(entries[-1].events) + len(entries[-1].aside)
        if events >= EVENTS_PER_READ:
            break
    return entries


def _what_comes(
    redis: redis_client.Redis,
    stream: str,
    *,
    after: str,
    count: int,
    may_linger: Callable[[], bool],
) -> list[redis_client.Found]:
    """Wait a moment for entries behind one, if we may; return those that have come."""
    for _ in range(LINGER_LOOKS):
        if not may_linger():
            break
        wait = LINGER_MILLISECONDS
        if found := redis_client.next_entries(
            redis, stream, after=after, count=count, milliseconds=wait
        ):
            return found
    return []


def _begin_again_after_loss(redis: redis_client.Redis, application: str) -> None:
    """Begin a new generation when Redis has lost the stream that the cursor points into.

    Agents send again what was not confirmed; what was folded is known by its batch id.
    """
    seen = store.read_stream(application)
    if seen.cursor == store.BEGINNING:
        return
    last = redis_client.last_id(redis, redis_keys.events(application))
    if last is not None and order(last) >= order(seen.cursor):
        return
    with transaction.atomic(durable=True):
        stream = store.lock(application)
        if stream == seen:
            store.reset_cursor(stream)
            log.warning("%s: Redis lost the stream after %s", application, seen.cursor)


def _confirm(
    redis: redis_client.Redis, application: str, entries: Sequence[Entry], *, count: int
) -> list[redis_client.Found]:
    """Tell the senders what is committed, then take it out of Redis: in one step. Return the
    entries that stand behind these."""
    spools: dict[UUID, list[str]] = {}
    for entry in entries:
        if entry.spool is not None:
            spools.setdefault(entry.spool, []).append(str(entry.batch))
    with redis.pipeline(transaction=True) as pipeline:
        for spool, batches in spools.items():
            key = redis_keys.confirmed(application, spool)
            pipeline.sadd(key, *batches)
            pipeline.expire(key, CONFIRMED_SECONDS)
        read = [(entry.id, entry.fields) for entry in entries]
        redis_client.take_out(pipeline, redis_keys.events(application), read)
        pipeline.set(redis_keys.woken(application), 1, ex=redis_keys.WOKEN_SECONDS)
        pipeline.xrange(redis_keys.events(application), min=f"({entries[-1].id}", count=count)
        *_, found = pipeline.execute()
    return redis_client.as_found(found)


def _tell(application: str, stored: Iterable[Stored]) -> None:
    """Relay at once when events close a command, change the application or begin an instance."""
    events = (each for each in stored if isinstance(each, StoredEvent))
    if not _RELAYED.isdisjoint({type(each.event.data) for each in events}):
        command_outbox.relay(application)

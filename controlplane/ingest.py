"""From Redis into the log: whole batches, in order, exactly once, whatever dies when.

The stream's row in PostgreSQL decides what is true. A batch is confirmed to its sender, and taken
out of Redis, after the transaction that holds its events; until then it can be read again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import get_args
from uuid import UUID, uuid5

import msgspec
from django.conf import settings
from django.db import transaction

from controlplane import broker, past, projections, relay, store
from controlplane.collecting import not_collecting
from controlplane.domain import ids, keys
from controlplane.domain.events import ApplicationEvent, CommandEvent, InstanceStarted, StoredEvent
from controlplane.domain.failed import Stored, last, size
from controlplane.domain.follow import asks, follow
from controlplane.domain.names import check_name
from controlplane.entries import POISON, Entry, read_entry

log = logging.getLogger(__name__)
CONFIRMED_SECONDS = 7 * 24 * 3600
#: A transaction is long enough to be cheap and short enough to be seen at once.
EVENTS_PER_READ = 30_000
FIRST_ENTRIES, MOST_ENTRIES = 64, 512
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


class _Moved(Exception):
    """Somebody else moved the stream on since it was read."""


def drain(
    application: str,
    *,
    budget_seconds: float = 5.0,
    may_linger: Callable[[], bool] = lambda: False,
) -> Drained:
    """Fold what waits in the application's stream, for at most about `budget_seconds`.

    When all is folded and `may_linger` says so, it waits a moment for what comes next. While it
    works nobody has to ask for it: the stream's mark, `keys.woken`, stays.
    """
    check_name("application", application)
    deadline = time.monotonic() + budget_seconds
    events = 0
    while True:
        with store.exclusively(application) as mine, not_collecting():
            if not mine:
                _cut_off_stuck(application)
                return Drained(events=events, busy=True)
            # Not before: it waits for a transaction that has changed the stream's row.
            store.open_stream(application)
            folded, more = _drain_until(deadline, application, may_linger)
            events += folded
        if more:
            return Drained(events=events, more=True)
        # Whoever was refused the lock while we held it, or did not ask since the mark was there,
        # has gone: take the mark away, then look again what came meanwhile.
        broker.client().delete(keys.woken(application))
        if not broker.client().xlen(keys.events(application)):
            return Drained(events=events)


def _cut_off_stuck(application: str) -> None:
    """Cut off who folds the stream but seems suspended; be the more patient the more often it was.

    PostgreSQL cannot tell a process that is suspended from one that computes: who only computes is
    given twice the time when it tries again, so that it gets through.
    """
    redis, key = broker.client(), keys.cut_off(application)
    before = min(int(redis.get(key) or 0), MOST_DOUBLINGS)
    seconds = STUCK_SECONDS * 2**before
    if store.cut_off_stuck(application, seconds=seconds):
        redis.set(key, before + 1, ex=keys.CUT_OFF_SECONDS)
        log.warning("%s: who folded it said nothing for %d s: cut off", application, seconds)


def _drain_until(
    deadline: float, application: str, may_linger: Callable[[], bool]
) -> tuple[int, bool]:
    """Fold until nothing waits or the time is over; return events folded, and whether more wait."""
    redis, events, count = broker.client(), 0, FIRST_ENTRIES
    redis.set(keys.woken(application), 1, ex=keys.WOKEN_SECONDS)
    _begin_again_after_loss(redis, application)
    # From the very beginning, not from the cursor: entries below it are leftovers of a crash
    # between commit and confirmation, or of a Redis whose clock went back. Both are told apart by
    # their batch ids.
    begin = "-"
    while time.monotonic() < deadline:
        seen = store.look(application)
        found = broker.entries(redis, keys.events(application), begin=begin, count=count)
        if not found:
            if begin != "-" and _something_came(redis, application, begin[1:], may_linger):
                continue
            return events, False
        entries = _read(application, found)
        try:
            stored = _fold(application, seen, entries)
        except _Moved:
            begin = "-"
            continue
        _confirm(redis, application, entries)
        _tell(application, stored)
        if stored and past.may_be_due(seen.sequence, last(stored[-1])):
            past.keep_if_due(application)
        events += sum(last(each) - each.sequence + 1 for each in stored)
        begin = f"({entries[-1].id}"
        packed = sum(size(entry.events) for entry in entries)
        fitting = len(entries) * EVENTS_PER_READ // max(packed, 1)
        count = max(1, min(fitting, count * 2, MOST_ENTRIES))
    return events, True


def _read(application: str, found: Iterable[tuple[str, Mapping[bytes, bytes]]]) -> list[Entry]:
    """Return entries in their order, as many as one transaction takes."""
    entries: list[Entry] = []
    events = 0
    for id, fields in found:
        entries.append(read_entry(application, id, fields))
        events += size(entries[-1].events) + len(entries[-1].aside)
        if events >= EVENTS_PER_READ:
            break
    return entries


def _something_came(
    redis: broker.Redis, application: str, last: str, may_linger: Callable[[], bool]
) -> bool:
    """Wait a moment for entries after `last`, if we may; return whether there are any."""
    positions = {keys.events(application): last}
    for _ in range(LINGER_LOOKS):
        if not may_linger():
            return False
        if broker.changed(redis, positions, milliseconds=LINGER_MILLISECONDS):
            return True
    return False


def _begin_again_after_loss(redis: broker.Redis, application: str) -> None:
    """Begin a new generation when Redis has lost the stream that the cursor points into.

    Agents send again what was not confirmed; what was folded is known by its batch id.
    """
    seen = store.look(application)
    if seen.cursor == store.BEGINNING:
        return
    last = broker.last_id(redis, keys.events(application))
    if last is not None and _order(last) >= _order(seen.cursor):
        return
    with transaction.atomic(durable=True):
        stream = store.lock(application)
        if stream == seen:
            store.begin_again(stream)
            log.warning("%s: Redis lost the stream after %s", application, seen.cursor)


def _fold(application: str, seen: store.Stream, entries: Sequence[Entry]) -> list[Stored]:
    """Fold `entries`; where a value breaks the fold, keep just its entry aside."""
    try:
        return _fold_all(application, seen, entries)
    except POISON as exc:
        log.exception("%s: an entry breaks the fold", application)
        if len(entries) == 1:
            return _fold_all(application, seen, [entries[0].refused(f"breaks the fold: {exc!r}")])
    stored = []
    for entry in entries:
        stored += _fold(application, store.look(application), [entry])
    return stored


def _fold_all(application: str, seen: store.Stream, entries: Sequence[Entry]) -> list[Stored]:
    """Append and project the new batches of `entries`, and move the cursor, in one transaction."""
    now = datetime.now(UTC)
    with transaction.atomic(durable=True):
        stream = store.lock(application)
        if (stream.cursor, stream.generation) != (seen.cursor, seen.generation):
            raise _Moved
        horizon = now - timedelta(days=settings.ENVIRONMENT.replay_days)
        fresh = [_in_time(entry, horizon) for entry in _not_seen(application, entries)]
        batches = [
            store.Batch(id=entry.batch, events=entry.events, packed=entry.packed)
            for entry in fresh
            if entry.batch is not None
        ]
        store.remember(stream, batches, received_at=now)
        stream, stored = store.append(stream, batches, received_at=now)
        if stored:
            projections.project(application, stored)
            stored += _followed(stream, stored, now=now)
        aside = [each for entry in fresh for each in entry.aside]
        if aside:
            store.keep_aside(aside, received_at=now)
            store.notify(stream)
        if _order(entries[-1].id) > _order(stream.cursor):
            store.move(stream, cursor=entries[-1].id)
    return stored


def _followed(stream: store.Stream, stored: Sequence[Stored], *, now: datetime) -> list[Stored]:
    """Append and show what the server itself does about what was said, in the same transaction."""
    followed: list[Stored] = []
    patience = timedelta(seconds=settings.ENVIRONMENT.command_expiry_seconds)
    for each in asks(stored):
        state = projections.standing(stream.application)
        events = follow(each, state, now=now, patience=patience)
        batch = store.Batch(id=uuid5(each.batch, f"follows {each.sequence}"), events=events)
        stream, appended = store.append(stream, [batch], received_at=now)
        if appended:
            projections.project(stream.application, appended)
        followed += appended
    return followed


def _not_seen(application: str, entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries whose batch is new; of one that was sent twice, the first."""
    batches = {entry.batch for entry in entries if entry.batch is not None}
    known = store.seen(application, batches)
    fresh = []
    for entry in entries:
        if entry.batch is not None:
            if entry.batch in known:
                continue
            known.add(entry.batch)
        fresh.append(entry)
    return fresh


def _in_time(entry: Entry, horizon: datetime) -> Entry:
    """Keep all of an entry aside whose batch is so old that its id may be forgotten."""
    if not entry.events or entry.batch is None or entry.batch.version not in (7, 8):
        return entry
    # As a number: the time of a foreign id may be of a year that no datetime knows.
    if ids.milliseconds(entry.batch) >= horizon.timestamp() * 1000:
        return entry
    return entry.refused(
        f"a batch of {ids.moment(entry.batch):%Y-%m-%d}, older than the replay horizon: nobody can"
        " say any more whether it is in the log already",
        too_old=True,
    )


def _confirm(redis: broker.Redis, application: str, entries: Sequence[Entry]) -> None:
    """Tell the senders what is committed, then take it out of Redis: in one step."""
    spools: dict[UUID, list[str]] = {}
    for entry in entries:
        if entry.spool is not None:
            spools.setdefault(entry.spool, []).append(str(entry.batch))
    with redis.pipeline(transaction=True) as pipeline:
        for spool, batches in spools.items():
            key = keys.confirmed(application, spool)
            pipeline.sadd(key, *batches)
            pipeline.expire(key, CONFIRMED_SECONDS)
        pipeline.xdel(keys.events(application), *[entry.id for entry in entries])
        pipeline.set(keys.woken(application), 1, ex=keys.WOKEN_SECONDS)
        pipeline.execute()


def _tell(application: str, stored: Iterable[Stored]) -> None:
    """Relay at once when events close a command, change the application or begin an instance."""
    events = (each for each in stored if isinstance(each, StoredEvent))
    if not _RELAYED.isdisjoint({type(each.event.data) for each in events}):
        relay.relay(application)


def _order(entry: str) -> tuple[int, int]:
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number)

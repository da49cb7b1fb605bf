"""Fold the entries of one read into the log and the views, in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID, uuid5

from django.conf import settings
from django.db import OperationalError, transaction
from psycopg.errors import QueryCanceled

from arrester.controlplane import store
from arrester.controlplane.ingest.batch_identity import unseen_entries
from arrester.controlplane.store import prepared_statements
from arrester.controlplane.store.stream_entry import ENTRY_ERRORS, DecodedEntry
from arrester.controlplane.views import dead_letters, projections
from arrester.domain.commands.reactions import needing_reaction, reaction_to
from arrester.domain.errors import BrokenState
from arrester.domain.identity import uuids
from arrester.domain.wire.failure_columns import Stored

log = logging.getLogger(__name__)
#: Ids of today and yesterday are never dropped; clocks may differ by the same time again.
IDS_KEPT_AT_LEAST = timedelta(hours=12)


#: A statement for several entries ends after so long; they are folded in parts.
STATEMENT_SECONDS = 10.0


class StreamAdvanced(Exception):
    """Another worker has advanced the stream since it was read."""


class Folded(NamedTuple):
    """The appended events, and the stream after them."""

    stream: store.LogStream
    stored: list[Stored]


def order(entry: str) -> tuple[int, int]:
    """Return the sort key of an entry's id."""
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number)


def fold(seen: store.LogStream, entries: Sequence[DecodedEntry]) -> Folded:
    """Append `entries` to a stream and fold them into its views; senders are confirmed later.

    If a value breaks the fold, only its entry is quarantined. If a statement takes too long, the
    entries are folded in parts. Raises StreamAdvanced if the stream
    is not as it was `seen` before the entries were read; BrokenState if a stored row cannot be
    read: then all entries wait, since they are folded over that row.
    """
    try:
        return _fold_all(seen, entries)
    except BrokenState as exc:
        log.error("%s: nothing is folded until this is repaired: %s", seen.application, exc)
        raise
    except ENTRY_ERRORS as exc:
        log.exception("%s: an entry breaks the fold", seen.application)
        if len(entries) == 1:
            return _fold_all(seen, [entries[0].refused(f"breaks the fold: {exc!r}")])
        parts = [[entry] for entry in entries]
    except OperationalError as exc:
        if not isinstance(exc.__cause__, QueryCanceled) or len(entries) == 1:
            raise
        log.warning("%s: folding %d entries is slow: in two parts", seen.application, len(entries))
        half = len(entries) // 2
        parts = [[*entries[:half]], [*entries[half:]]]
    stored: list[Stored] = []
    for part in parts:
        # If another worker advances the stream meanwhile, a sweep relays what is stored by then.
        folded = fold(seen, part)
        seen = folded.stream
        stored += folded.stored
    return Folded(seen, stored)


def _fold_all(seen: store.LogStream, entries: Sequence[DecodedEntry]) -> Folded:
    """Append and project the new batches of `entries`, and advance the cursor, in one
    transaction."""
    application = seen.application
    now = datetime.now(UTC)
    with transaction.atomic(durable=True):
        with prepared_statements.pipelined():
            if len(entries) > 1:
                store.limit_statements(STATEMENT_SECONDS)
            locked = store.send_lock(application)
            known = store.send_seen_batches(
                application, {each.batch for each in entries if each.batch}
            )
            before = projections.query_states(
                application, (element for each in entries for element in each.events)
            )
        stream = locked()
        if (stream.cursor, stream.generation) != (seen.cursor, seen.generation):
            raise StreamAdvanced
        fresh = _accepted(application, entries, known(), now=now)
        batches = [
            store.NewBatch(id=entry.batch, events=entry.events, packed=entry.packed)
            for entry in fresh
            if entry.batch is not None
        ]
        cursor = max(stream.cursor, entries[-1].id, key=order)
        layout = store.lay_out_rows(stream, batches, received_at=now)
        stored, (state, tasks) = layout.stored, before()
        with store.copying(layout):
            state.fold(stored)
        with prepared_statements.pipelined():
            store.record_batches(stream, batches, received_at=now)
            if stored:
                stream = store.advance_stream(stream, layout, cursor=cursor)
                projections.write_states(state, stored, tasks)
        if stored:
            # Written outside the pipeline, whose buffer would have all of many dead letters.
            dead_letters.write(application, stored)
            stream, followed = _append_reactions(stream, stored, now=now)
            stored += followed
        _quarantine(stream, fresh, now=now)
        if stream.cursor != cursor:
            stream = store.move_cursor(stream, cursor=cursor)
    return Folded(stream, stored)


def _quarantine(stream: store.LogStream, entries: Iterable[DecodedEntry], *, now: datetime) -> None:
    """Store the invalid parts of entries, and notify live pages of them."""
    quarantined = [each for entry in entries for each in entry.quarantined]
    if quarantined:
        store.add_to_quarantine(quarantined, received_at=now)
        store.notify(stream)


def _append_reactions(
    stream: store.LogStream, stored: Sequence[Stored], *, now: datetime
) -> Folded:
    """Append and project the server's own reactions in the same transaction."""
    requests = needing_reaction(stored)
    if not requests:
        return Folded(stream, [])
    state = projections.current_states(stream.application)
    expiry = timedelta(seconds=settings.ENVIRONMENT.command_expiry_seconds)
    reaction = reaction_to(requests, state, now=now, expiry=expiry)
    if reaction is None:
        return Folded(stream, [])
    cause, events = reaction
    batch = store.NewBatch(id=uuid5(cause.batch, f"follows {cause.sequence}"), events=events)
    stream, followed = store.append(stream, [batch], received_at=now)
    projections.project(stream.application, followed)
    return Folded(stream, followed)


def _accepted(
    application: str, entries: Sequence[DecodedEntry], known: set[UUID], *, now: datetime
) -> list[DecodedEntry]:
    """Return the entries that are not in the log; those that may be there are quarantined."""
    unseen = unseen_entries(application, entries, known)
    horizon = _horizon(unseen, now=now)
    return [_within_horizon(entry, horizon) for entry in unseen]


def _horizon(entries: Iterable[DecodedEntry], *, now: datetime) -> float:
    """Return the time, in milliseconds, before which an id may have been forgotten.

    Ids forgotten under a shorter setting stay forgotten. Ids of today and yesterday never are, so
    most folds need no query.
    """
    horizon = now - timedelta(days=settings.ENVIRONMENT.replay_days)
    some = min((at for entry in entries if (at := _batch_time(entry)) is not None), default=None)
    if some is not None and some < (now - IDS_KEPT_AT_LEAST).timestamp() * 1000:
        since = store.batch_ids_since()
        if since is not None:
            horizon = max(horizon, datetime.combine(since, datetime.min.time(), UTC))
    return horizon.timestamp() * 1000


def _batch_time(entry: DecodedEntry) -> int | None:
    """Return the milliseconds of an entry's batch, if it has a time and events."""
    if not entry.events or entry.batch is None or entry.batch.version not in (7, 8):
        return None
    # As a number: a foreign id may contain a year beyond datetime.
    return uuids.milliseconds(entry.batch)


def _within_horizon(entry: DecodedEntry, horizon: float) -> DecodedEntry:
    """Quarantine an entry whose batch is so old that its id may be forgotten."""
    at = _batch_time(entry)
    if entry.batch is None or at is None or at >= horizon:
        return entry
    return entry.refused(
        f"a batch of {uuids.moment(entry.batch):%Y-%m-%d}, older than the replay horizon;"
        " whether the log has it already is unknown",
        too_old=True,
    )

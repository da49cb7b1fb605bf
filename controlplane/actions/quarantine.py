"""Requeue or dismiss quarantined entries.

Both append an event with the actor, the number and the reason in the same transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

import msgspec
from django.db import transaction

from arrester.controlplane import store
from arrester.controlplane.actions.transaction import check_text, new_id
from arrester.controlplane.domain.commands.decide import TEXT_MAX
from arrester.controlplane.domain.errors import InvalidValue, NotFound
from arrester.controlplane.domain.events import Event, QuarantineDismissed, QuarantineRequeued
from arrester.controlplane.outbound import command_outbox
from arrester.controlplane.store.stream_entry import POISON, Entry, read_again
from arrester.controlplane.views import projections

log = logging.getLogger(__name__)
#: Entries that are requeued in one transaction.
PORTION = 100


class Requeued(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a requeue."""

    put_back: int
    waiting: int


def requeue(
    application: str,
    *,
    actor: str,
    which: store.EntrySelection = store.INVALID_ENTRIES,
) -> Requeued:
    """Requeue the entries that this version can decode; the others stay quarantined.

    It works in portions, each with an event that names the actor: folds continue in between, and a
    requeued portion stays so whatever happens to the rest. Whoever requeues batches that are too
    old confirms that they are not in the log.
    """
    check_text(actor=actor)
    done, after = Requeued(put_back=0, waiting=0), 0
    say = partial(QuarantineRequeued, actor=actor)
    while (portion := _requeue_some(application, which, after=after, say=say)) is not None:
        some, after = portion
        done = Requeued(put_back=done.put_back + some.put_back, waiting=done.waiting + some.waiting)
    return done


@transaction.atomic(durable=True)
def _requeue_some(
    application: str,
    which: store.EntrySelection,
    *,
    after: int = 0,
    say: Callable[..., QuarantineRequeued],
    id: UUID | None = None,
) -> tuple[Requeued, int] | None:
    """Requeue a portion; return the result, and the number after which the next one begins.
    None: nothing is left."""
    now = datetime.now(UTC)
    stream = store.lock(application)
    if id is not None and store.seen_batches(application, [id]):
        return None
    kept = store.read_waiting_entries(application, which, after=after, limit=PORTION)
    if not kept:
        return None
    put_back = []
    for each in kept:
        try:
            read = read_again(each)
            stream = _put_back(stream, read, received_at=now)
        except POISON:
            log.exception("%s: %s still breaks the fold", application, each.entry)
            continue
        if read.events:
            put_back.append(each.id)
    store.mark_requeued(put_back, at=now)
    if put_back:
        _note(stream, say(count=len(put_back)), id, at=now)
        transaction.on_commit(partial(command_outbox.relay_or_leave, application))
    return Requeued(put_back=len(put_back), waiting=len(kept) - len(put_back)), kept[-1].id


@transaction.atomic(durable=True)
def dismiss(
    application: str,
    *,
    actor: str,
    reason: str | None = None,
    which: store.EntrySelection = store.INVALID_ENTRIES,
    entry: str | None = None,
    id: UUID | None = None,
) -> int:
    """Dismiss entries; return how many there were."""
    check_text(actor=actor, reason=reason)
    now = datetime.now(UTC)
    stream = store.lock(application)
    if id is not None and store.seen_batches(application, [id]):
        return 0
    dismissed = store.dismiss_entries(application, which, at=now)
    if dismissed:
        said = QuarantineDismissed(count=dismissed, actor=actor, reason=reason, entry=entry)
        _note(stream, said, id, at=now)
    return dismissed


def requeue_one(number: int, *, actor: str, id: UUID) -> bool:
    """Requeue one entry if this version can decode it; return whether it was.

    Raises NotFound, and InvalidValue for an entry that is only too old: the log may have it
    already.
    """
    kept = _kept(number)
    if kept.too_old:
        raise InvalidValue("id", number, "what is not too old: that may be in the log already")
    which = store.EntrySelection(id=number)
    check_text(actor=actor)
    say = partial(QuarantineRequeued, actor=actor, entry=kept.entry)
    portion = _requeue_some(kept.application, which, say=say, id=id)
    return portion is not None and portion[0].put_back > 0


def dismiss_one(number: int, *, actor: str, reason: str, id: UUID) -> None:
    """Dismiss one entry; raise NotFound if there is none, InvalidValue without a reason."""
    if not reason.strip():
        raise InvalidValue("reason", reason, f"a reason of 1 to {TEXT_MAX} characters")
    kept = _kept(number)
    which = store.EntrySelection(id=number)
    dismiss(kept.application, actor=actor, reason=reason, which=which, entry=kept.entry, id=id)


def _kept(number: int) -> store.QuarantinedEntry:
    found = store.read_quarantined_entry(number)
    if found is None:
        raise NotFound(f"there is nothing of number {number} in quarantine")
    return found


def _note(
    stream: store.Stream,
    said: QuarantineDismissed | QuarantineRequeued,
    id: UUID | None,
    *,
    at: datetime,
) -> None:
    batch = store.Batch(id=id or new_id(), events=[Event(occurred_at=at, data=said)])
    if id is not None:
        store.record_batches(stream, [batch], received_at=at)
    _, stored = store.append(stream, [batch], received_at=at)
    projections.project(stream.application, stored)


@transaction.atomic
def _put_back(stream: store.Stream, entry: Entry, *, received_at: datetime) -> store.Stream:
    """Append the decodable part of an entry, and quarantine the rest of it."""
    if not entry.events:
        return stream
    again = store.Batch(id=entry.batch or new_id(), events=entry.events, packed=entry.packed)
    stream, stored = store.append(stream, [again], received_at=received_at)
    projections.project(stream.application, stored)
    store.add_to_quarantine(entry.aside, received_at=received_at)
    return stream

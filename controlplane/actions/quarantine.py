"""Requeue or dismiss quarantined entries.

Both append an event with the actor, the number and the reason in the same transaction.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

import msgspec
from django.db import transaction

from arrester.controlplane import access, audit_chain, store
from arrester.controlplane.actions.transaction import check_text, new_id
from arrester.controlplane.outbound import command_outbox
from arrester.controlplane.store.stream_entry import ENTRY_ERRORS, DecodedEntry, reread_entry
from arrester.controlplane.views import projections
from arrester.domain.commands.request import TEXT_MAX
from arrester.domain.errors import InvalidValue
from arrester.domain.events import Event, QuarantineDismissed, QuarantineRequeued

log = logging.getLogger(__name__)
#: Entries that are requeued in one transaction.
PORTION = 100


class Requeued(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of entries that were requeued, and of those that are still invalid."""

    requeued: int
    invalid: int


def requeue(
    application: str,
    *,
    actor: str,
    which: store.EntrySelection = store.INVALID_ENTRIES,
) -> Requeued:
    """Requeue the entries that this version can decode; the others stay quarantined.

    It works in portions, each with an event that names the actor: folds continue in between, and a
    requeued portion stays so if the rest fails. The caller who requeues batches that are
    too old confirms that they are not in the log.
    """
    check_text(actor=actor)
    requeued = invalid = after = 0
    while portion := _requeue_some(application, which, after=after, actor=actor):
        some, after = portion
        requeued, invalid = requeued + some.requeued, invalid + some.invalid
    return Requeued(requeued=requeued, invalid=invalid)


def requeue_one(number: int, *, actor: str, id: UUID) -> bool:
    """Requeue one entry if this version can decode it; return whether it was.

    Raises NotFound, and InvalidValue for an entry that is only too old, which the log may have
    already, or that was too large to be stored whole.
    """
    entry = store.read_quarantined_entry(number)
    if entry.too_old:
        allowed = "an invalid entry: one that is only too old may be in the log already"
        raise InvalidValue("id", number, allowed)
    if entry.cut_from is not None:
        stored = f"an entry that is stored whole: of this one {len(entry.raw):,} bytes are"
        raise InvalidValue("id", number, f"{stored} of {entry.cut_from:,}")
    check_text(actor=actor)
    portion = _requeue_some(
        entry.application, store.EntrySelection(id=number), actor=actor, entry=entry.entry, id=id
    )
    return portion is not None and portion[0].requeued > 0


@access.acts
@transaction.atomic(durable=True)
def _requeue_some(
    application: str,
    which: store.EntrySelection,
    *,
    after: int = 0,
    actor: str,
    entry: str | None = None,
    id: UUID | None = None,
) -> tuple[Requeued, int] | None:
    """Requeue a portion; return the result, and the number after which the next one begins.
    None: nothing is left."""
    now = datetime.now(UTC)
    stream = store.lock(application)
    if id is not None and store.seen_batches(application, [id]):
        return None
    entries = store.read_waiting_entries(application, which, after=after, limit=PORTION)
    if not entries:
        return None
    requeued = []
    for each in entries:
        try:
            decoded = reread_entry(each)
            stream = _append(stream, decoded, received_at=now)
        except ENTRY_ERRORS:
            log.exception("%s: %s still breaks the fold", application, each.entry)
            continue
        if decoded.events:
            requeued.append(each.id)
    store.mark_requeued(requeued, at=now)
    if requeued:
        data = QuarantineRequeued(actor=actor, entry=entry, count=len(requeued))
        _record(stream, data, id, at=now)
        transaction.on_commit(partial(command_outbox.try_relay, application))
    return Requeued(requeued=len(requeued), invalid=len(entries) - len(requeued)), entries[-1].id


@access.acts
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
    count = store.dismiss_entries(application, which, at=now)
    if count:
        data = QuarantineDismissed(count=count, actor=actor, reason=reason, entry=entry)
        _record(stream, data, id, at=now)
    return count


def dismiss_one(number: int, *, actor: str, reason: str, id: UUID) -> None:
    """Dismiss one entry; raise NotFound if there is none, InvalidValue without a reason."""
    if not reason.strip():
        raise InvalidValue("reason", reason, f"a reason of 1 to {TEXT_MAX} characters")
    entry = store.read_quarantined_entry(number)
    which = store.EntrySelection(id=number)
    dismiss(entry.application, actor=actor, reason=reason, which=which, entry=entry.entry, id=id)


def _record(
    stream: store.LogStream,
    data: QuarantineDismissed | QuarantineRequeued,
    id: UUID | None,
    *,
    at: datetime,
) -> None:
    batch = store.NewBatch(id=id or new_id(), events=[Event(occurred_at=at, data=data)])
    if id is not None:
        store.record_batches(stream, [batch], received_at=at)
    _, stored = store.append(stream, [batch], received_at=at)
    projections.project(stream.application, stored)
    audit_chain.append_events(stored)


@transaction.atomic
def _append(
    stream: store.LogStream, entry: DecodedEntry, *, received_at: datetime
) -> store.LogStream:
    """Append the decodable part of an entry, and quarantine the rest of it."""
    if not entry.events:
        return stream
    batch = store.NewBatch(id=entry.batch or new_id(), events=entry.events, packed=entry.packed)
    stream, stored = store.append(stream, [batch], received_at=received_at)
    projections.project(stream.application, stored)
    store.add_to_quarantine(entry.quarantined, received_at=received_at)
    return stream

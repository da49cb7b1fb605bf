"""One entry of a stream in Redis: a batch of events, or an invalid entry."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import msgspec
from django.db import DataError
from msgspec.structs import replace

from arrester.controlplane.redis.event_streams import CUT_FROM, ENTRY_BYTES
from arrester.controlplane.store import QuarantinedEntry
from arrester.domain.errors import MalformedBatch
from arrester.domain.events import (
    EVENT_TYPES,
    ApplicationLatched,
    ApplicationOpened,
    BodyErased,
    CommandCancelled,
    CommandExpired,
    CommandIssued,
    DeadLettersDiscarded,
    ErrorGroupAssigned,
    ErrorGroupMuted,
    ErrorGroupReopened,
    ErrorGroupResolved,
    ErrorGroupUnmuted,
    Event,
    InstanceFound,
    InstanceLost,
    NoteAdded,
    QuarantineDismissed,
    QuarantineRequeued,
    TaskDismissed,
)
from arrester.domain.wire import codec, received_batch
from arrester.domain.wire.failure_columns import Element
from arrester.domain.wire.signed_messages import SIGNED

#: Events that only people and the server may emit; refused from an agent.
SERVER_ONLY = frozenset(
    {
        ApplicationLatched,
        ApplicationOpened,
        BodyErased,
        CommandCancelled,
        CommandExpired,
        CommandIssued,
        DeadLettersDiscarded,
        ErrorGroupAssigned,
        ErrorGroupMuted,
        ErrorGroupReopened,
        ErrorGroupResolved,
        ErrorGroupUnmuted,
        InstanceFound,
        InstanceLost,
        NoteAdded,
        QuarantineDismissed,
        QuarantineRequeued,
        TaskDismissed,
    }
)
#: Events that an instance may report only as an act of a person there, or as effect of a command.
CHECKED_EVENTS = SERVER_ONLY | {
    cls for cls in EVENT_TYPES.values() if "actor" in cls.__struct_fields__
}

#: Raised for an unforeseen value: by the pure fold, while rows are laid out, or by PostgreSQL. Any
#: other failure (an unreachable server, a missing table, an unreadable row) is not caused by an
#: entry and is retried.
ENTRY_ERRORS = (
    DataError, ValueError, TypeError, ArithmeticError, LookupError, RecursionError, MemoryError,
)  # fmt: skip


#: What zlib makes of a byte at most.
_RATIO = 1032


class DecodedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry, decoded as far as possible."""

    application: str
    id: str
    fields: Mapping[bytes, bytes]
    #: The id of the batch; None if it does not name batch and spool, so that nothing is confirmed.
    batch: UUID | None = None
    spool: UUID | None = None
    #: Whether its sender requires a signed confirmation.
    signed: bool = False
    #: The events of the batch, without their bodies if all were decoded: these stay packed.
    events: tuple[Element, ...] = ()
    #: The received bytes of the events, if all were decoded.
    packed: codec.Packed | None = None
    quarantined: tuple[QuarantinedEntry, ...] = ()
    #: The most bytes of the events without bodies, unpacked.
    unpacked: int = 0

    def refused(self, reason: str, *, too_old: bool = False) -> DecodedEntry:
        """Return the entry with all of it quarantined."""
        entry = QuarantinedEntry(
            application=self.application,
            entry=self.id,
            batch=self.batch,
            index=None,
            reason=reason,
            raw=msgspec.msgpack.encode(dict(self.fields)),
            too_old=too_old,
            cut_from=_cut_from(self.fields),
        )
        return replace(self, events=(), packed=None, quarantined=(entry,))


def read_entry(application: str, id: str, fields: Mapping[bytes, bytes]) -> DecodedEntry:
    """Return an entry of the application's stream; invalid parts are quarantined, never raised."""
    entry = DecodedEntry(application=application, id=id, fields=fields)
    try:
        entry = replace(
            entry,
            batch=codec.parse_uuid(fields.get(b"batch"), "batch"),
            spool=codec.parse_uuid(fields.get(b"spool"), "spool"),
            signed=fields.get(b"confirmation") == SIGNED.encode(),
        )
        if _cut_from(fields) is not None:
            return entry.refused(_too_large(fields))
        batch = fields.get(b"events", b"")
        if (parts := received_batch.read_batch(batch)) is not None:
            elements, packed, unpacked = parts
            # Columns are failed records, which any agent may report.
            events = (each for each in elements if isinstance(each, Event))
            if not any(_refusal(each) for each in events if type(each.data) in CHECKED_EVENTS):
                return replace(entry, events=tuple(elements), packed=packed, unpacked=unpacked)
        decoded = received_batch.decode_batch(batch)
    except MalformedBatch as exc:
        return entry.refused(_too_large(fields) or str(exc))
    except MemoryError:
        return entry.refused("more than the memory of who folds it can hold")
    most = min(len(batch) * _RATIO, codec.BATCH_MAX_BYTES)
    return _with_events(replace(entry, unpacked=most), dict(enumerate(decoded)))


def _cut_from(fields: Mapping[bytes, bytes]) -> int | None:
    """Return the size of an entry of which only a part was read; None if it was read whole."""
    size = fields.get(CUT_FROM, b"")
    return int(size) if size.isdigit() and len(size) < 10 else None


def _too_large(fields: Mapping[bytes, bytes]) -> str:
    size = _cut_from(fields)
    return "" if size is None else f"{size:,} bytes; at most {ENTRY_BYTES:,} are read"


def reread_entry(stored: QuarantinedEntry) -> DecodedEntry:
    """Return a quarantined entry, decoded again as far as possible."""
    entry = DecodedEntry(
        application=stored.application, id=stored.entry, fields={}, batch=stored.batch
    )
    if stored.index is not None:
        return _with_events(entry, {stored.index: received_batch.decode_event(stored.raw)})
    fields = msgspec.msgpack.decode(stored.raw, type=dict[bytes, bytes])
    return read_entry(stored.application, stored.entry, fields)


def _with_events(
    entry: DecodedEntry, decoded: Mapping[int, Event | received_batch.UnreadableEvent]
) -> DecodedEntry:
    checked = {index: _checked(each) for index, each in decoded.items()}
    quarantined = [
        QuarantinedEntry(
            application=entry.application,
            entry=entry.id,
            batch=entry.batch,
            index=index,
            reason=each.reason,
            raw=each.raw,
        )
        for index, each in checked.items()
        if isinstance(each, received_batch.UnreadableEvent)
    ]
    events = [each for each in checked.values() if isinstance(each, Event)]
    return replace(entry, events=tuple(events), quarantined=tuple(quarantined))


def _checked(
    event: Event | received_batch.UnreadableEvent,
) -> Event | received_batch.UnreadableEvent:
    if isinstance(event, Event) and (reason := _refusal(event)):
        return received_batch.UnreadableEvent(raw=codec.encode_event(event), reason=reason)
    return event


def _refusal(event: Event) -> str:
    """Return why an event is refused from an agent; empty if it is not."""
    if type(event.data) in SERVER_ONLY:
        return f"only the server may report {event.type}"
    by_hand = event.caused_by is None and getattr(event.data, "actor", None) is not None
    if by_hand and event.instance is None:
        return f"{event.type} names a person, and no instance that reports it"
    return ""

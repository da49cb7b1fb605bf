"""Compare a batch with the one of the same id in the log: only a repetition may be ignored."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from msgspec.structs import replace

from arrester.controlplane import store
from arrester.controlplane.store.stream_entry import DecodedEntry
from arrester.domain.errors import MalformedBatch
from arrester.domain.events import Event
from arrester.domain.wire import codec
from arrester.domain.wire.counted_only import counted_only
from arrester.domain.wire.failure_columns import Element, expand

REUSED = "its batch id was used before, by other events"


def unseen_entries(
    application: str, entries: Iterable[DecodedEntry], known: Collection[UUID]
) -> list[DecodedEntry]:
    """Return the entries whose batch is not `known`; of a repeated one, the first.

    An entry that differs from the batch with its id is quarantined. They are compared by their
    events without bodies, which may have been erased. An agent may repeat a batch counted only,
    and an agent of another version may pack it differently.
    """
    fresh: list[DecodedEntry] = []
    repeated: dict[UUID, list[DecodedEntry]] = {}
    differing: list[tuple[UUID, DecodedEntry]] = []
    first: dict[UUID, DecodedEntry] = {}
    for entry in entries:
        if entry.batch is None:
            fresh.append(entry)
        elif entry.batch in known:
            repeated.setdefault(entry.batch, []).append(entry)
        elif first.setdefault(entry.batch, entry) is entry:
            fresh.append(entry)
        elif not _is_same(first[entry.batch], entry):
            differing.append((entry.batch, entry))
    for batch, heads in store.heads_of_batches(application, repeated) if repeated else ():
        differing += [(batch, each) for each in repeated[batch] if not _is_logged(each, heads)]
    return fresh + (_quarantined(application, differing) if differing else [])


def _quarantined(
    application: str, differing: Sequence[tuple[UUID, DecodedEntry]]
) -> list[DecodedEntry]:
    """Return the entries with all of them quarantined, unless their batch already is."""
    known = store.quarantined_batches(application, {batch for batch, _ in differing})
    fresh = []
    for batch, entry in differing:
        same = (batch, _packed(entry))
        if same not in known:
            known.add(same)
            # Without the id, which belongs to the other batch.
            fresh.append(replace(entry.refused(REUSED), batch=None))
    return fresh


def _is_same(one: DecodedEntry, other: DecodedEntry) -> bool:
    return _packed(one) == _packed(other) or _reduced(one.events) == _reduced(other.events)


def _packed(entry: DecodedEntry) -> bytes:
    return entry.fields.get(b"events", b"")


def _is_logged(entry: DecodedEntry, heads: bytes | None) -> bool:
    """Return whether stored events are those of the entry; also if they cannot be read."""
    if heads is None or (entry.packed is not None and entry.packed.heads == heads):
        return True
    try:
        stored = codec.decode_elements(heads) if heads else []
    except MalformedBatch:
        return True
    return _reduced(stored) == _reduced(entry.events)


def _reduced(elements: Iterable[Element]) -> list[Event]:
    return counted_only(list(expand(elements)))

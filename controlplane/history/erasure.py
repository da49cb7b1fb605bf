"""Legal erasure: the only change of the log, made by the owner of its tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from django.conf import settings
from django.db import connection, transaction

from arrester.controlplane import audit_chain, store
from arrester.controlplane.settings import database_settings
from arrester.controlplane.views import projections
from arrester.domain.errors import InvalidValue
from arrester.domain.events import BodyErased, Event
from arrester.domain.identity import uuids


@contextmanager
def as_owner() -> Iterator[None]:
    """Connect as the owner of the tables (MIGRATE_DATABASE_URL) while the block runs."""
    before = dict(connection.settings_dict)
    connection.close()
    owner = database_settings("MIGRATE_DATABASE_URL", settings.MIGRATE_DATABASE_URL)
    connection.settings_dict.update(owner)
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(before)


def erase(application: str, sequence: int, *, actor: str, reason: str) -> int:
    """Erase the body of one event and append an event about it; return the position of that.

    Requires the owner's connection. Raises NotFound if there is no such body, or not any more.
    """
    if not reason.strip():
        raise InvalidValue("reason", reason, "why the body is erased")
    with transaction.atomic(durable=True):
        now = datetime.now(UTC)
        stream = store.lock(application)
        partition = store.erase_body(store.read_one(application, sequence))
        event = Event(
            occurred_at=now, data=BodyErased(sequence=sequence, actor=actor, reason=reason)
        )
        batch = store.NewBatch(id=uuids.uuid7(now), events=[event])
        stream, stored = store.append(stream, [batch], received_at=now)
        projections.project(application, stored)
        audit_chain.append_events(stored)
        store.index_again(stream, sequence)
    # The former row stays on the disk until it is overwritten.
    store.vacuum(partition)
    return stream.sequence

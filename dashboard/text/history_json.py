"""A task's history in the stored form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from arrester.controlplane.domain.events import StoredEvent


def as_json(events: Iterable[StoredEvent]) -> str:
    """Return events as a JSON list, without bodies, one field per line."""
    told = msgspec.json.encode([_told(stored) for stored in events])
    return msgspec.json.format(told, indent=2).decode()


def _told(stored: StoredEvent) -> dict[str, Any]:
    event = stored.event
    return {
        "application": stored.application,
        "sequence": stored.sequence,
        "type": event.type,
        "schema_version": event.schema_version,
        "occurred_at": event.occurred_at,
        "received_at": stored.received_at,
        "instance": event.instance,
        "run": event.run,
        "caused_by": event.caused_by,
        "data": event.data,
    }

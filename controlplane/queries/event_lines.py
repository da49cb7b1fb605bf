"""Events as lines of JSON, as many and as equal as those of a page.

They are encoded from the stored events at once, without a dictionary for each.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from arrester.domain.events import Event, Run, StoredEvent

_encoder = msgspec.json.Encoder()


class EventLine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The fields of an event over REST, in the order of a page."""

    application: str
    sequence: int
    received_at: datetime
    type: str
    occurred_at: datetime
    instance: UUID | None
    run: Run | None
    caused_by: UUID | None
    data: msgspec.Raw


def lines(events: Iterable[StoredEvent]) -> list[bytes]:
    """Return each event as JSON, without an end of line."""
    return [_line(each) for each in events]


def encode(value: Any) -> bytes:
    """Return a value as one line of JSON."""
    return _encoder.encode(value)


def data_of(event: Event) -> bytes:
    """Return the fields of an event as JSON, without its type."""
    data = _encoder.encode(event.data)
    # The struct begins with its type.
    tag = len(event.type) + len('{"type":""')
    return b"{" + data[tag:].removeprefix(b",")


def _line(stored: StoredEvent) -> bytes:
    event = stored.event
    return _encoder.encode(
        EventLine(
            application=stored.application,
            sequence=stored.sequence,
            received_at=stored.received_at,
            type=event.type,
            occurred_at=event.occurred_at,
            instance=event.instance,
            run=event.run,
            caused_by=event.caused_by,
            data=msgspec.Raw(data_of(event)),
        )
    )

"""The interface to which a run publishes its events. The runtime keeps them until confirmation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from arrester.controlplane.domain.events import Event


class Outbox(Protocol):
    """Durable, ordered and idempotent by batch ID. Nothing after it can stop or slow a pipeline."""

    def put(self, batch_id: UUID, events: Sequence[Event]) -> None:
        """Store `events` as one batch; the same ID again changes nothing."""
        ...

    def is_confirmed(self, batch_id: UUID) -> bool:
        """Whether the server has confirmed the batch."""
        ...

    def keeps(self, batch_id: UUID) -> bool:
        """Whether the batch is stored and survives the process; False means unknown."""
        ...

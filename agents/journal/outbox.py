"""Where the engine leaves its events; the runtime keeps them until they are confirmed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from arrester.controlplane.domain.events import Event


class Outbox(Protocol):
    """Durable, ordered, idempotent by batch id. Nothing behind it can stop or slow a pipeline."""

    def put(self, batch_id: UUID, events: Sequence[Event]) -> None:
        """Keep `events` as one batch; the same id again changes nothing."""
        ...

    def is_confirmed(self, batch_id: UUID) -> bool:
        """Whether the server has said that it has the batch for good."""
        ...

    def keeps(self, batch_id: UUID) -> bool:
        """Whether the batch is here and outlives the process; False means not known to be."""
        ...

"""What comes back over the road to the server, whatever the road is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from arrester.controlplane.domain.errors import ArresterError

#: How long a blocking read of commands stays with Redis before it is asked again.
BLOCK_SECONDS = 5.0


class TransportDown(ArresterError):
    """Redis cannot be reached, or refuses; nothing is known to have happened, so try again."""


class Verdict(StrEnum):
    """What Redis made of an append."""

    DONE = "DONE"
    #: The stream is at its bound: only the first entries, or none, were taken.
    FULL = "FULL"
    #: Redis lost what it had taken before; nothing was appended.
    LOST = "LOST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The answer to an append: `entries` are the stream ids of the first batches, in order."""

    verdict: Verdict
    entries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRequests:
    """What the server asks of an instance, read with each heartbeat."""

    #: Count failed records instead of describing them: the server is behind.
    counts_only: bool = False
    #: The id of a report of how the instance's tasks stand.
    report: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEntry:
    """One entry of the stream of commands, not yet understood."""

    id: str
    body: bytes

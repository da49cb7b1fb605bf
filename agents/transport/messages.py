"""What the server sends to an agent, independent of the transport."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from arrester.controlplane.domain.errors import ArresterError

#: The maximum time of one blocking read of commands.
BLOCK_SECONDS = 5.0


class TransportDown(ArresterError):
    """Redis cannot be reached or refuses; the operation may be repeated."""


class Verdict(StrEnum):
    """The result of an append."""

    DONE = "DONE"
    #: The stream is at its limit: only the first entries, or none, were appended.
    FULL = "FULL"
    #: Redis lost entries that it had accepted; nothing was appended.
    LOST = "LOST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The answer to an append: `entries` are the stream ids of the first batches, in order."""

    verdict: Verdict
    entries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRequests:
    """What the server requests of an instance; read with each heartbeat."""

    #: Count failed records instead of reporting them in full: the server is overloaded.
    counts_only: bool = False
    #: The id of the requested report of the states of the instance's tasks.
    report: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEntry:
    """One entry of the stream of commands, not yet decoded."""

    id: str
    body: bytes

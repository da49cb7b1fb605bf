"""The names of our Redis keys: an application's Redis user needs `arrester:<application>:*`."""

from __future__ import annotations

from uuid import UUID

HEARTBEAT_SECONDS = 5
LOST_AFTER_SECONDS = 30
EVENT_STREAMS = "arrester:*:events"


def events(application: str) -> str:
    """The stream of batches of events; one entry is one batch."""
    return f"arrester:{application}:events"


def application_of(events_key: str) -> str:
    """The application whose stream of events this key is."""
    return events_key.removeprefix("arrester:").removesuffix(":events")


def confirmed(application: str, spool: UUID) -> str:
    """The set of batch ids of one spool that are committed in the event store."""
    return f"arrester:{application}:confirmed:{spool}"


def commands(application: str) -> str:
    """The stream of open commands, read by every instance of the application."""
    return f"arrester:{application}:commands"


def heartbeat(application: str, instance: UUID) -> str:
    """A key that lives while its instance is heard."""
    return f"arrester:{application}:instance:{instance}"


def state(application: str) -> str:
    """OPEN or LATCHED, as the server last said; absent means OPEN."""
    return f"arrester:{application}:state"

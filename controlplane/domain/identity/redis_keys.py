"""The names of our Redis keys: an application's Redis user needs `arrester:<application>:*`."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

HEARTBEAT_SECONDS = 5
#: How long a heartbeat lives in Redis: who has none was not heard for so long at least.
LOST_AFTER_SECONDS = 30
#: How long agents hold back after the server has said so once.
OVERLOAD_SECONDS = 30
#: How long an instance may take to answer a request for a report.
REPORT_SECONDS = 60
#: How long the mark of a fold lives that nobody renews. With two looks of `wake`'s, which last a
#: second at most, a fold that died is asked for again after 5 s.
WOKEN_SECONDS = 3
#: How long it is remembered that a fold was cut off.
CUT_OFF_SECONDS = 3600
EVENT_STREAMS = "arrester:*:events"
#: Since when the server has watched this Redis without a gap, and when it last looked.
WATCH = "arrester:watch"
#: When PostgreSQL was last seen, for whoever asks while it is away.
POSTGRES_SEEN = "arrester:postgres"


class OverloadLevel(StrEnum):
    """What agents are asked to leave out while the server is behind; state changes always go."""

    #: Failed records are counted instead of described, and bodies stay out.
    COUNTS = "COUNTS"


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


def woken(application: str) -> str:
    """A short-lived mark that a fold of the stream is on its way or at work: nobody has to ask.

    It holds the id of the one message that counts, until a fold at work writes over it.
    """
    return f"arrester:{application}:fold"


def cut_off(application: str) -> str:
    """How often a fold of the stream was cut off, the last time within CUT_OFF_SECONDS."""
    return f"arrester:{application}:cut-off"


def overload(application: str) -> str:
    """How much the agents may tell, as the server last said: absent means everything.

    The value is an `OverloadLevel`; it is set with OVERLOAD_SECONDS to live, so that a server that
    is gone silences nobody.
    """
    return f"arrester:{application}:overload"


def report(application: str, instance: UUID) -> str:
    """The id of a report that the server asks of an instance: how its tasks stand (StateReported).

    It lives for REPORT_SECONDS; an instance answers an id once.
    """
    return f"arrester:{application}:report:{instance}"


def drift(application: str, instance: UUID) -> str:
    """What the server remembers of an instance whose tasks it sees otherwise."""
    return f"arrester:{application}:drift:{instance}"

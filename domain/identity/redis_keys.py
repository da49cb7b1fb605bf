"""The names of our Redis keys, and of the agents' Redis users."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from arrester.domain.python_versions import StrEnum

#: An id, or "*" for the pattern of all ids. Names of applications have no special characters.
Id = UUID | Literal["*"]

HEARTBEAT_SECONDS = 5
#: The lifetime of a heartbeat in Redis: an instance without one was silent for at least this long.
LOST_AFTER_SECONDS = 30
#: How long agents reduce their reports after one request of the server.
OVERLOAD_SECONDS = 30
#: How long an instance may take to answer a request for a report.
REPORT_SECONDS = 60
#: The lifetime of the pending-fold key without a renewal. With two checks of `wake`, of at most a
#: second each, a dead fold is requested again after 5 s.
PENDING_FOLD_SECONDS = 3
EVENT_STREAMS = "arrester:*:events"
#: Since when the server has watched this Redis without a gap, and when it last checked.
WATCH = "arrester:watch"
#: What each application had at the last check of quotas: a hash.
USAGE = "arrester:usage"
#: Sums of metrics of all processes of the server: a hash.
METRICS = "arrester:metrics"
#: While it exists, no worker begins the periodic task of the name that follows.
PERIODIC = "arrester:periodic-"
#: The keys of applications, as a pattern.
OF_APPLICATIONS = "arrester:*:*"
#: How long Redis keeps confirmations, and the last batch of a spool, without a new one.
CONFIRMED_SECONDS = 7 * 24 * 3600
#: When PostgreSQL was last reachable, for use while it is not.
POSTGRES_SEEN = "arrester:postgres"
#: The beginning of the names of agents' Redis users, before the application.
AGENT_USER = "arrester-agent-"


class OverloadLevel(StrEnum):
    """What agents omit while the server is overloaded; state changes are always sent."""

    #: Failed records are only counted, without bodies.
    COUNTS = "COUNTS"


def events(application: str) -> str:
    """The stream of batches of events; one entry is one batch."""
    return f"arrester:{application}:events"


def application_of(events_key: str) -> str:
    """The application whose stream of events this key is."""
    return events_key.removeprefix("arrester:").removesuffix(":events")


def confirmed(application: str, spool: Id) -> str:
    """The set of batch ids of one spool that are committed in the event store."""
    return f"arrester:{application}:confirmed:{spool}"


def sent(application: str, spool: Id) -> str:
    """The last batch of one spool that Redis has accepted: a set of one id.

    A set, since its user may look for a member, and may read no value.
    """
    return f"arrester:{application}:sent:{spool}"


def dead_letter_record(application: str, id: str) -> str:
    """The record of a dead letter that a worker has read. No user of agents may access it."""
    return f"arrester-records:{application}:{id}"


def signed_confirmations(application: str, spool: UUID) -> str:
    """The set of signed confirmations of one spool, for agents that require signatures.

    A member is a signature and the ids of the batches that one transaction committed.
    """
    return f"arrester:{application}:confirmed:{spool}:signed"


def commands(application: str) -> str:
    """The stream of open commands, read by every instance of the application."""
    return f"arrester:{application}:commands"


def heartbeat(application: str, instance: Id) -> str:
    """A key that exists while its instance sends heartbeats."""
    return f"arrester:{application}:instance:{instance}"


def state(application: str) -> str:
    """OPEN or LATCHED, as last published by the server; absent means OPEN."""
    return f"arrester:{application}:state"


def signed_state(application: str) -> str:
    """The state with the server's signature and its time, as `SignedState` in JSON."""
    return f"arrester:{application}:state:signed"


def pending_fold(application: str) -> str:
    """The pending-fold key: a fold of the stream is requested or running.

    It holds the id of the valid message until a running fold overwrites it.
    """
    return f"arrester:{application}:fold"


def log_end(application: str) -> str:
    """The newest log position when the server last confirmed batches."""
    return f"arrester:{application}:log-end"


def overload(application: str) -> str:
    """How much the agents may report, as last published by the server; absent means everything.

    The value is an `OverloadLevel`. It expires after OVERLOAD_SECONDS, so that a dead server
    restricts no agent.
    """
    return f"arrester:{application}:overload"


def over_quota(application: str) -> str:
    """The quotas that an application exceeds, separated by commas; absent means none.

    It expires, so that a dead server restricts no agent.
    """
    return f"arrester:{application}:over-quota"


def memory_limit(application: str) -> str:
    """The memory in bytes that Redis may use before its agents wait, as published by the server.

    Absent or 0 means no limit. Agents may not read `maxmemory`.
    """
    return f"arrester:{application}:memory-limit"


def report(application: str, instance: Id) -> str:
    """The id of the report that the server requests of an instance: its tasks' states
    (StateReported).

    It expires after REPORT_SECONDS; an instance answers an id once.
    """
    return f"arrester:{application}:report:{instance}"


def drift(application: str, instance: UUID) -> str:
    """The server's record of an instance whose task states differ from the stored ones."""
    return f"arrester:{application}:drift:{instance}"


def agent_user(application: str) -> str:
    """The Redis user of the application's agents; names of applications need no escaping."""
    return f"{AGENT_USER}{application}"

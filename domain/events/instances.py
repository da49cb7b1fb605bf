"""Events of instances, the driver processes."""

from __future__ import annotations

import msgspec

from arrester.domain.events.parts import Data, Failure, Moment


class InstanceStarted(Data, frozen=True, kw_only=True, tag=True):
    """A driver process has created an agent."""

    host: str
    pid: int
    #: Names and versions, for people: agent, python, spark.
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    #: The address of the driver's Spark UI; None: it is off.
    spark_ui: str | None = None


class InstanceStopping(Data, frozen=True, kw_only=True, tag=True):
    """The instance begins to end: on purpose, or because of an error."""

    reason: str
    error: bool = False


class InstanceStopped(Data, frozen=True, kw_only=True, tag=True):
    """The instance has ended; nothing of it runs any more."""

    reason: str
    error: bool = False
    failure: Failure | None = None
    #: No failed record and no end of a run has reported the failure: the script itself failed. The
    #: body has the stack trace.
    recordless: bool = False


class InstanceLost(Data, frozen=True, kw_only=True, tag=True):
    """The server has received no heartbeat for the agreed time; the last state is kept.

    `last_heard` is a lower bound of that time.
    """

    last_heard: Moment


class InstanceFound(Data, frozen=True, kw_only=True, tag=True):
    """A lost instance sends heartbeats again."""


InstanceEvent = InstanceStarted | InstanceStopping | InstanceStopped | InstanceLost | InstanceFound

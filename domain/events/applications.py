"""Events of applications."""

from __future__ import annotations

from arrester.domain.events.parts import Data, Failure


class ApplicationLatched(Data, frozen=True, kw_only=True, tag=True):
    """The application was shut down and stays so until it is started again."""

    reason: str
    actor: str | None = None


class ApplicationOpened(Data, frozen=True, kw_only=True, tag=True):
    """Instances of the application may run."""

    reason: str | None = None
    actor: str | None = None


class ApplicationShutdownRequested(Data, frozen=True, kw_only=True, tag=True):
    """A failure of an instance was answered by SHUTDOWN_APPLICATION (KIP-671): all instances
    end."""

    reason: str
    failure: Failure | None = None


ApplicationEvent = ApplicationLatched | ApplicationOpened | ApplicationShutdownRequested

"""What happens to applications."""

from __future__ import annotations

from controlplane.domain.events.base import Data


class ApplicationLatched(Data, frozen=True, kw_only=True, tag=True):
    """The application was shut down and stays so until somebody starts it again."""

    reason: str
    actor: str | None = None


class ApplicationOpened(Data, frozen=True, kw_only=True, tag=True):
    """Instances of the application may run."""

    reason: str | None = None
    actor: str | None = None


ApplicationEvent = ApplicationLatched | ApplicationOpened

"""How the control plane itself is: lag, quarantine, and what answers."""

from __future__ import annotations

from controlplane.queries.answers import Health, Lag, Page, Quarantined


def lags() -> tuple[Lag, ...]:
    """Return the lag of each application, by name; one that only waits in Redis is included."""
    raise NotImplementedError


def lag(application: str) -> Lag:
    """Return one application's lag; raise NotFound."""
    raise NotImplementedError


def quarantine(
    application: str | None = None, *, cursor: str | None = None, limit: int = 50
) -> Page[Quarantined]:
    """Return what was not understood, newest first."""
    raise NotImplementedError


def health() -> Health:
    """Return what answers now, and since when the rest does not; never raises."""
    raise NotImplementedError

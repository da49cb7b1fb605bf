"""The application for schemathesis: no limit of requests, and streams end after a portion."""

from __future__ import annotations

from arrester.controlplane.web.asgi import application
from arrester.dashboard.rest.authentication import Throttle
from arrester.dashboard.rest.event_feed import stream

__all__ = ["application"]

# Thousands of requests a minute, by one account.
Throttle.rate = None  # type: ignore[assignment]
stream.MOST_SECONDS = 0.0

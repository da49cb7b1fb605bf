"""The session of a person: the address of its requests, and its end after idle time."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from arrester.controlplane.web import client_address as client_addresses

#: When a session was last extended, in seconds since 1970.
_EXTENDED = "extended"
#: A session is extended at most once in this time.
EXTEND_SECONDS = 60
#: The id of the part of a page that refreshes itself, as htmx sends it.
_REFRESHED = "live"


def client_address(request: HttpRequest) -> str:
    """Return the address of the client of a request."""
    return client_addresses.client_address(
        request.headers.get("X-Forwarded-For", ""),
        request.META.get("REMOTE_ADDR") or "",
        proxies=settings.ENVIRONMENT.proxies,
    )


def extend(request: HttpRequest) -> None:
    """Extend the session, unless a script of an open page sent the request.

    Refreshes, the live stream and REST do not extend it: an unattended page ends after the idle
    time.
    """
    if request.headers.get("HX-Trigger") == _REFRESHED or _is_poll(request):
        return
    if time.time() - request.session.get(_EXTENDED, 0) >= EXTEND_SECONDS:
        mark_extended(request=request)


def mark_extended(*, request: HttpRequest, **_: Any) -> None:
    """Record that the session begins, or is extended, now; receives Django's user_logged_in."""
    request.session[_EXTENDED] = int(time.time())


def _is_poll(request: HttpRequest) -> bool:
    return request.resolver_match is not None and request.resolver_match.url_name == "problems"

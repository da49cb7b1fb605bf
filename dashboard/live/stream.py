"""The stream of server-sent events that notifies open pages of changes.

An event names the changed applications that the user may see; its id is the sum of the newest
positions of their logs. A client with another sum is notified to read everything again.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial

from asgiref.sync import sync_to_async
from django.contrib.auth import get_user
from django.db import OperationalError, connections
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.views.decorators.http import require_GET

from arrester.controlplane.web.session_store import SessionStore
from arrester.dashboard.live.hub import ALL, RETRY_SECONDS, Hub, Mailbox
from arrester.dashboard.permissions import Person, person

HEARTBEAT_SECONDS = 15.0
#: How long a stream may continue after a log-out or the loss of a role.
CHECK_SECONDS = 60.0
HUB = Hub()


@require_GET
async def live(request: HttpRequest) -> HttpResponseBase:
    """Stream changes to a page, from the log positions that it shows."""
    try:
        user = await request.auser()
        who = await sync_to_async(person)(user)
    except OperationalError:
        return HttpResponse(status=503)
    if who is None:
        return HttpResponse(status=401)
    # Before any other request can: streams that are opened at once do not exceed the limit.
    mailbox = HUB.claim(who.name, who.seen)
    if mailbox is None:
        # The page polls.
        return HttpResponse(status=429, headers={"Retry-After": "60"})
    # The stream may last for days, and needs no PostgreSQL connection besides the hub's.
    await sync_to_async(connections.close_all)()
    key = request.session.session_key
    shown = request.headers.get("Last-Event-ID") or request.GET.get("position", "")
    return StreamingHttpResponse(
        stream(
            HUB,
            mailbox,
            shown,
            heartbeat_seconds=HEARTBEAT_SECONDS,
            has_role=partial(sync_to_async(_sees_same), key, who.seen),
            check_seconds=CHECK_SECONDS,
        ),
        content_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def _sees_same(session_key: str | None, applications: frozenset[str] | None) -> bool:
    """Return whether the user of the stream is still logged in and sees the same applications.

    A page that loses its stream opens it again.
    """
    try:
        who = person_of_session(session_key)
        return who is not None and who.seen == applications
    except OperationalError:
        # While PostgreSQL is unreachable there are no changes to send.
        return True
    finally:
        connections.close_all()


def person_of_session(session_key: str | None) -> Person | None:
    """Return the user of a session with its roles; None: logged out, or without a role."""
    request = HttpRequest()
    request.session = SessionStore(session_key)
    return person(get_user(request))


async def _always() -> bool:
    return True


async def stream(
    hub: Hub,
    mailbox: Mailbox,
    shown: str,
    *,
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
    has_role: Callable[[], Awaitable[bool]] = _always,
    check_seconds: float = CHECK_SECONDS,
) -> AsyncGenerator[str, None]:
    """Yield events for a client that shows the position `shown`, until it leaves or loses its
    permission, which is checked periodically."""
    applications = mailbox.applications
    async with hub.subscription(mailbox):
        yield f"retry: {int(RETRY_SECONDS * 1000)}\n\n"
        next_check = time.monotonic() + check_seconds
        while True:
            changed = await mailbox.take(timeout=heartbeat_seconds)
            if time.monotonic() >= next_check:
                if not await has_role():
                    return
                next_check = time.monotonic() + check_seconds
            if not changed or (ALL in changed and str(hub.position(applications)) == shown):
                yield ": nothing new\n\n"
                continue
            shown = str(hub.position(applications))
            yield f"event: changed\nid: {shown}\ndata: {' '.join(sorted(changed))}\n\n"

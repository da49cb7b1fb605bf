"""The stream of server-sent events that tells an open page what has moved.

An event names the applications that moved; its id is the position of the whole log. A client that
comes with a position that is not the present one is told to read everything again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from asgiref.sync import sync_to_async
from django.db import OperationalError, connections
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.views.decorators.http import require_GET

from dashboard.hub import ALL, RETRY_SECONDS, Hub
from dashboard.people import person

HEARTBEAT_SECONDS = 15.0
HUB = Hub()


@require_GET
async def live(request: HttpRequest) -> HttpResponseBase:
    """Stream what moves to a page, from the position that it shows."""
    try:
        user = await request.auser()
        who = await sync_to_async(person)(user)
    except OperationalError:
        return HttpResponse(status=503)
    if who is None:
        return HttpResponse(status=401)
    # The stream may last for days, and needs nothing more of PostgreSQL than the hub's listener.
    await sync_to_async(connections.close_all)()
    shown = request.headers.get("Last-Event-ID") or request.GET.get("position", "")
    return StreamingHttpResponse(
        stream(HUB, shown),
        content_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def stream(
    hub: Hub, shown: str, *, heartbeat_seconds: float = HEARTBEAT_SECONDS
) -> AsyncGenerator[str, None]:
    """Yield events for a client that shows the position `shown`, until it goes."""
    async with hub.subscription() as mailbox:
        yield f"retry: {int(RETRY_SECONDS * 1000)}\n\n"
        while True:
            moved = await mailbox.take(timeout=heartbeat_seconds)
            if not moved or (ALL in moved and str(hub.position) == shown):
                yield ": nothing new\n\n"
                continue
            shown = str(hub.position)
            yield f"event: changed\nid: {shown}\ndata: {' '.join(sorted(moved))}\n\n"

"""Whether the client of a request is still there: reads for one that has left end."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from arrester.controlplane.web.request_limits import Application, Message, Receive, Scope, Send

#: A request that is left in the middle must not leave half of what it does.
_ONLY_READS: Final = frozenset({"GET", "HEAD"})


class Client:
    """The client of a request."""

    def __init__(self) -> None:
        self.has_left = False


_CLIENT: ContextVar[Client | None] = ContextVar("client", default=None)


def has_left() -> bool:
    """Whether this thread reads for a client that closed its connection."""
    client = _CLIENT.get()
    return client is not None and client.has_left


class Disconnects:
    """Note when the client of a reading request closes its connection.

    Django waits for it beside the view, whose thread it cannot stop; the connection to PostgreSQL
    asks `has_left`.
    """

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") not in _ONLY_READS:
            await self._application(scope, receive, send)
            return
        client = Client()

        async def receive_and_note() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect":
                client.has_left = True
            return message

        token = _CLIENT.set(client)
        try:
            await self._application(scope, receive_and_note, send)
        finally:
            _CLIENT.reset(token)

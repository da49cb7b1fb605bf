"""Limits of request bodies, applied before Django stores a body on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

Scope = dict[str, Any]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

#: The largest body of any request; Django parses no larger forms.
MAXIMUM_BYTES: Final = 2_621_440
#: The largest body that anyone may send without a session, by path.
ANONYMOUS_BYTES: Final[Mapping[str, int]] = {"/login": 16_384}
#: The time for a whole body.
MAXIMUM_SECONDS: Final = 30.0


class TooLarge(Exception):
    """The body of a request is larger than its path allows."""


class BodyLimits:
    """Answer 413 to bodies that are too large, and 408 to those that arrive too slowly.

    Other bodies are received completely, into memory, before the application begins.
    """

    def __init__(self, application: Application, *, seconds: float = MAXIMUM_SECONDS) -> None:
        self._application = application
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        limit = ANONYMOUS_BYTES.get(scope["path"], MAXIMUM_BYTES)
        try:
            body = await asyncio.wait_for(_body(scope, receive, limit), self._seconds)
        except TooLarge:
            await refuse(send, 413, f"The body of this request may have {limit:,} bytes at most.")
            return
        except TimeoutError:
            text = f"The body of the request did not arrive within {self._seconds:g} seconds."
            await refuse(send, 408, text)
            return
        if body is None:
            return
        received = False

        async def receive_again() -> Message:
            nonlocal received
            if received:
                return await receive()
            received = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._application(scope, receive_again, send)


async def _body(scope: Scope, receive: Receive, limit: int) -> bytes | None:
    """Return the body; None if the client has left. Raises TooLarge."""
    length = dict(scope["headers"]).get(b"content-length", b"0")
    # The server has checked that it is a number.
    if int(length) > limit:
        raise TooLarge
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > limit:
            raise TooLarge
        if not message.get("more_body", False):
            return bytes(body)


async def refuse(send: Send, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
    """Answer, and close the connection: the rest of the body may still arrive."""
    body = text.encode()
    all_headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})

"""Limits of request bodies, applied before Django stores a body on disk."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from arrester.controlplane.web.problem_details import MEDIA_TYPE, PREFIX, problem

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
            text = f"The body of this request may have {limit:,} bytes at most."
            await _refuse(scope, send, 413, "body_too_large", "The body is too large", text)
            return
        except TimeoutError:
            text = f"The body of the request did not arrive within {self._seconds:g} seconds."
            await _refuse(scope, send, 408, "body_too_slow", "The body is too slow", text)
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


async def _refuse(scope: Scope, send: Send, status: int, code: str, title: str, text: str) -> None:
    """Answer a request, one of REST as all its errors."""
    if scope["path"].startswith(PREFIX):
        text = json.dumps(problem(status, code, title, text))
        await refuse(send, status, text, media_type=MEDIA_TYPE)
    else:
        await refuse(send, status, text)


async def refuse(
    send: Send,
    status: int,
    text: str,
    *headers: tuple[bytes, bytes],
    media_type: str = "text/plain; charset=utf-8",
) -> None:
    """Answer, and close the connection: the rest of the body may still arrive."""
    body = text.encode()
    all_headers = [
        (b"content-type", media_type.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})

"""One password check at a time: hashing a password takes a processor for a quarter of a second.

The queue is before Django, so that a waiting request needs neither a thread nor a connection to
PostgreSQL.
"""

from __future__ import annotations

import asyncio
from typing import Final

from arrester.controlplane.web.request_limits import (
    Application,
    Message,
    Receive,
    Scope,
    Send,
    refuse,
)

PATHS: Final = frozenset({"/login", "/settings/password"})
#: Requests that wait, or whose answer is delayed; further ones are refused.
MAXIMUM: Final = 64
#: The delay of an answer other than a redirect: a program that tries passwords waits for it.
DELAY_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 5


class LoginQueue:
    """Pass forms with a password to the application one by one, and delay refusals."""

    def __init__(self, application: Application, *, delay: float = DELAY_SECONDS) -> None:
        self._application = application
        self._delay = delay
        self._one = asyncio.Lock()
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (scope["type"], scope.get("method")) != ("http", "POST") or scope["path"] not in PATHS:
            await self._application(scope, receive, send)
            return
        if self._requests >= MAXIMUM:
            await asyncio.sleep(self._delay)
            text = f"Too many log-ins at the same time. Try again in {RETRY_SECONDS} seconds."
            await refuse(send, 429, text, (b"retry-after", str(RETRY_SECONDS).encode()))
            return
        self._requests += 1
        try:
            response = await self._response(scope, receive)
            if response and response[0].get("status") != 302:
                await asyncio.sleep(self._delay)
        finally:
            self._requests -= 1
        for message in response:
            await send(message)

    async def _response(self, scope: Scope, receive: Receive) -> list[Message]:
        response: list[Message] = []

        async def keep(message: Message) -> None:
            response.append(message)

        async with self._one:
            await self._application(scope, receive, keep)
        return response

"""One password check at a time: hashing a password takes a processor for a quarter of a second.

The queue is before Django, so that a waiting request needs neither a thread nor a connection to
PostgreSQL. Addresses take turns, and each has a share of the places: many log-ins from one address
delay one from another address by one check.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Network, ip_address
from typing import Final

from arrester.controlplane.web.client_address import UNKNOWN, client_address
from arrester.controlplane.web.request_limits import (
    Application,
    Message,
    Receive,
    Scope,
    Send,
    refuse,
)

PATHS: Final = frozenset({"/login", "/settings/password"})
#: Requests that wait, or whose answer is delayed, of all addresses and of one; further ones are
#: refused.
MAXIMUM: Final = 64
MAXIMUM_PER_ADDRESS: Final = 8
#: A client has all IPv6 addresses of such a network.
_IPV6_PREFIX: Final = 64
#: The delay of an answer other than a redirect: a program that tries passwords waits for it.
DELAY_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 5


@dataclass(slots=True)
class _Address:
    """The requests of one address."""

    #: Its holder is the only request of this address that waits for the next check.
    next: asyncio.Lock = field(default_factory=asyncio.Lock)
    requests: int = 0


class LoginQueue:
    """Pass forms with a password to the application one by one, and delay refusals.

    Args:
        proxies: the number of reverse proxies in front of the server; None: there are some, whose
            number is unknown, so all requests count as those of one client.
    """

    def __init__(
        self, application: Application, *, proxies: int | None, delay: float = DELAY_SECONDS
    ) -> None:
        self._application = application
        self._proxies = proxies
        self._delay = delay
        self._check = asyncio.Lock()
        self._addresses: dict[str, _Address] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (scope["type"], scope.get("method")) != ("http", "POST") or scope["path"] not in PATHS:
            await self._application(scope, receive, send)
            return
        client = self._client(scope)
        if self._is_full_for(client):
            await asyncio.sleep(self._delay)
            text = f"Too many log-ins at the same time. Try again in {RETRY_SECONDS} seconds."
            await refuse(send, 429, text, (b"retry-after", str(RETRY_SECONDS).encode()))
            return
        with self._place(client) as address:
            response = await self._response(address, scope, receive)
            if response and response[0].get("status") != 302:
                await asyncio.sleep(self._delay)
        for message in response:
            await send(message)

    def _client(self, scope: Scope) -> str:
        if self._proxies is None:
            return UNKNOWN
        forwarded = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
        peer, _ = scope.get("client") or ("", 0)
        hops = b",".join(forwarded).decode("latin-1")
        return _network(client_address(hops, peer, proxies=self._proxies))

    def _is_full_for(self, client: str) -> bool:
        if sum(each.requests for each in self._addresses.values()) >= MAXIMUM:
            return True
        known = self._addresses.get(client)
        return known is not None and client != UNKNOWN and known.requests >= MAXIMUM_PER_ADDRESS

    @contextmanager
    def _place(self, client: str) -> Iterator[_Address]:
        address = self._addresses.setdefault(client, _Address())
        address.requests += 1
        try:
            yield address
        finally:
            address.requests -= 1
            if not address.requests:
                del self._addresses[client]

    async def _response(self, address: _Address, scope: Scope, receive: Receive) -> list[Message]:
        response: list[Message] = []

        async def keep(message: Message) -> None:
            response.append(message)

        # Locks are first in, first out, so addresses take turns.
        async with address.next, self._check:
            await self._application(scope, receive, keep)
        return response


def _network(address: str) -> str:
    """Return what one client has: an address of IPv4, or a network of IPv6."""
    if address == UNKNOWN:
        return address
    found = ip_address(address)
    if isinstance(found, IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Network((int(found), _IPV6_PREFIX), strict=False))

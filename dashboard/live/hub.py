"""The hub of live pages: one PostgreSQL listener per process, one mailbox per client."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Final
from weakref import WeakSet

import django.db
import psycopg
from asgiref.sync import sync_to_async
from django.conf import settings

from arrester.controlplane import queries
from arrester.controlplane.settings import database_settings

LOG = logging.getLogger(__name__)
CHANNEL: Final = "arrester"
RETRY_SECONDS: Final = 1.0
#: Silence for this long may be a connection that a firewall has dropped.
PROBE_SECONDS: Final = 15.0
#: Any application may have changed.
ALL: Final = "*"
#: A mailbox with more names contains ALL instead.
NAMES_LIMIT: Final = 100
#: Open streams of all users, and of one of them: a browser has one for all its windows.
LIMIT: Final = 1_000
USER_LIMIT: Final = 20


class Mailbox:
    """The applications that changed since a client last read it; bounded for a slow client."""

    def __init__(self, user: str = "", applications: frozenset[str] | None = None) -> None:
        self.user = user
        #: Those that the client may see; None: all.
        self.applications = applications
        self._names: set[str] = set()
        self._filled = asyncio.Event()

    def put(self, name: str) -> None:
        """Add an application that the client may see, or ALL of them."""
        if self.applications is not None and name not in (ALL, *self.applications):
            return
        self._names.add(name)
        if len(self._names) > NAMES_LIMIT:
            self._names = {ALL}
        self._filled.set()

    async def take(self, *, timeout: float) -> set[str]:
        """Return the changed applications as soon as there are any; none after `timeout`
        seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._filled.wait(), timeout)
        self._filled.clear()
        names, self._names = self._names, set()
        return {ALL} if ALL in names else names


class Hub:
    """Listen while there are subscribers, and keep the newest position of each log."""

    def __init__(self, *, probe_seconds: float = PROBE_SECONDS) -> None:
        self._probe_seconds = probe_seconds
        self._mailboxes: set[Mailbox] = set()
        #: Claimed by requests whose answers have not begun; those of abandoned requests are gone.
        self._claimed: WeakSet[Mailbox] = WeakSet()
        self._listener: asyncio.Task[None] | None = None
        self._sequences: dict[str, int] = {}

    def position(self, applications: frozenset[str] | None = None) -> int:
        """Return a number that grows with each event of the applications, as far as received.

        None: of all applications.
        """
        if applications is None:
            return sum(self._sequences.values())
        return sum(self._sequences.get(name, 0) for name in applications)

    def claim(self, user: str = "", applications: frozenset[str] | None = None) -> Mailbox | None:
        """Return a mailbox for a subscription; None: this user, or all together, have as many as
        allowed.

        It counts until its subscription ends, or the caller drops it.
        """
        every = [*self._mailboxes, *self._claimed]
        own = sum(each.user == user for each in every)
        if own >= USER_LIMIT or len(every) >= LIMIT:
            return None
        mailbox = Mailbox(user, applications)
        self._claimed.add(mailbox)
        return mailbox

    @contextlib.asynccontextmanager
    async def subscription(self, mailbox: Mailbox) -> AsyncIterator[None]:
        """Fill a mailbox; the first subscriber starts the listener, the last one ends it.

        It contains ALL once the listener listens: from then on nothing is missed.
        """
        self._mailboxes.add(mailbox)
        self._claimed.discard(mailbox)
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen())
        else:
            mailbox.put(ALL)
        try:
            yield
        finally:
            self._mailboxes.discard(mailbox)
            if not self._mailboxes and self._listener is not None:
                self._listener.cancel()
                self._listener = None

    async def _listen(self) -> None:
        while True:
            try:
                await self._receive()
            except (psycopg.Error, django.db.Error, ValueError) as error:
                LOG.warning("live pages poll for now: %s", str(error).strip())
            await asyncio.sleep(RETRY_SECONDS)

    async def _receive(self) -> None:
        options = database_settings("DATABASE_URL", settings.DATABASE_URL)["OPTIONS"]
        connection = await psycopg.AsyncConnection.connect(
            settings.DATABASE_URL, autocommit=True, **options
        )
        async with connection:
            await connection.execute(f"LISTEN {CHANNEL}")
            # In another thread than the requests': the listener outlives the one that started it.
            self._sequences = await sync_to_async(_log_positions, thread_sensitive=False)()
            self._notify(ALL)
            while True:
                async for notice in connection.notifies(timeout=self._probe_seconds):
                    name, _, sequence = notice.payload.partition(" ")
                    self._sequences[name] = max(int(sequence), self._sequences.get(name, 0))
                    self._notify(name)
                await self._probe(connection)

    async def _probe(self, connection: psycopg.AsyncConnection) -> None:
        """Raise OperationalError if the server does not answer."""
        try:
            await asyncio.wait_for(connection.execute("SELECT 1"), self._probe_seconds)
        except TimeoutError:
            raise psycopg.OperationalError("PostgreSQL has stopped answering") from None

    def _notify(self, name: str) -> None:
        for mailbox in self._mailboxes:
            mailbox.put(name)


def _log_positions() -> dict[str, int]:
    try:
        return queries.log_positions()
    finally:
        django.db.connections.close_all()

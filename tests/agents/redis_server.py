"""A Redis for one test, which may stop, start and empty it, and the confirming server."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from uuid import UUID

import redis

from arrester.controlplane import signing
from arrester.controlplane.embedded.home import Credentials, Home
from arrester.controlplane.embedded.redis import Redis
from arrester.domain.events import Event
from arrester.domain.identity import redis_keys
from arrester.domain.wire import received_batch
from tests import scratch


@dataclass(slots=True)
class Server:
    """A server process on a unix socket; a stop deletes its data."""

    process: Redis
    url: str
    client: redis.Redis

    def stop(self) -> None:
        self.process.stop()

    def start(self) -> None:
        self.process.start()


@contextmanager
def running() -> Iterator[Server]:
    """Run a Redis until the block ends."""
    folder = Path(tempfile.mkdtemp(prefix="arrester-redis-", dir=scratch.FOLDER))
    home, credentials = Home(folder), Credentials(redis="only-for-tests")
    for place in (home.logs, home.redis_data):
        place.mkdir(parents=True)
    process = Redis(home=home, credentials=credentials, durable=False)
    process.start()
    url = home.urls(credentials).redis
    client = redis.Redis.from_url(url, protocol=2)
    try:
        yield Server(process, url, client)
    finally:
        client.close()
        process.stop()
        shutil.rmtree(folder)
        shutil.rmtree(home.sockets, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a stream of events."""

    id: str
    batch: UUID
    spool: UUID
    packed: bytes
    #: Whether the agent requires a signed confirmation.
    signed: bool

    @property
    def events(self) -> list[Event]:
        events = received_batch.decode_batch(self.packed)
        assert all(isinstance(event, Event) for event in events)
        return cast("list[Event]", events)


@dataclass(slots=True)
class FoldingSide:
    """In place of the server: takes entries in order, drops known batches, confirms, trims."""

    client: redis.Redis
    application: str = "flights"
    cursor: str = "0"
    #: False: as a server before signatures.
    signs: bool = True
    #: Committed entries in order, each batch once.
    folded: list[Entry] = field(default_factory=list)

    def entries(self) -> list[Entry]:
        """Return the entries of the stream."""
        rows = cast(
            "list[tuple[bytes, dict[bytes, bytes]]]",
            self.client.xrange(redis_keys.events(self.application)),
        )
        return [
            Entry(
                id=id.decode(),
                batch=UUID(fields[b"batch"].decode()),
                spool=UUID(fields[b"spool"].decode()),
                packed=fields[b"events"],
                signed=fields[b"confirmation"] == b"signed",
            )
            for id, fields in rows
        ]

    def take(self) -> None:
        """Commit all entries without confirming them."""
        known = {entry.batch for entry in self.folded}
        for entry in self.entries():
            if entry.batch not in known:
                known.add(entry.batch)
                self.folded.append(entry)

    def confirm(self) -> None:
        """Commit all entries, confirm them, then trim the stream."""
        entries = self.entries()
        self.take()
        for entry in entries:
            key = redis_keys.confirmed(self.application, entry.spool)
            self.client.sadd(key, str(entry.batch))
            self.client.expire(key, redis_keys.CONFIRMED_SECONDS)
            if entry.signed and self.signs:
                record = signing.sign_confirmation(self.application, entry.spool, [entry.batch])
                key = redis_keys.signed_confirmations(self.application, entry.spool)
                self.client.sadd(key, record)
        if entries:
            self.client.xdel(redis_keys.events(self.application), *[entry.id for entry in entries])

    @property
    def events(self) -> list[Event]:
        """All committed events, in order."""
        return [event for entry in self.folded for event in entry.events]

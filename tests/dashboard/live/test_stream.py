"""The stream of server-sent events, on a real LISTEN."""

from __future__ import annotations

import asyncio
import gc
import http.client
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections
from django.test import AsyncClient, Client
from django.urls import reverse
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from redis import Redis

from arrester.controlplane import embedded, queries
from arrester.controlplane.web.connection_pool.base import SIZE
from arrester.dashboard.live import stream as live_stream
from arrester.dashboard.live.hub import ALL, NAMES_LIMIT, USER_LIMIT, Hub, Mailbox
from tests.dashboard.accounts import logged_in, make_user
from tests.dashboard.browser import web
from tests.dashboard.story import Story
from tests.patience import PATIENCE_SECONDS
from tests.services import DATABASE

T = TypeVar("T")


def run(story: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine and close the connections of its thread."""

    async def whole() -> T:
        try:
            return await asyncio.wait_for(story(), timeout=PATIENCE_SECONDS)
        finally:
            await sync_to_async(connections.close_all)()

    return asyncio.run(whole())


async def next_event(stream: AsyncIterator[str]) -> dict[str, str]:
    """Return the fields of the next event, without comments."""
    async for text in stream:
        fields = dict(line.split(": ", 1) for line in text.strip().splitlines())
        if "event" in fields:
            return fields
    raise AssertionError("the stream has ended")


def stream_of(
    hub: Hub, shown: str, *, applications: frozenset[str] | None = None, **more: Any
) -> AsyncGenerator[str, None]:
    """Return a stream for a client that shows a position."""
    mailbox = hub.claim("ben", applications)
    assert mailbox is not None
    return live_stream.stream(hub, mailbox, shown, **more)


def position() -> str:
    """Return the position of the whole log, as a page has it."""
    return str(sum(queries.log_positions().values()))


@pytest.mark.usefixtures("fresh_database")
class TestStream:
    def test_a_fold_is_notified_with_its_application_and_position(self, redis: Redis) -> None:
        flights = Story()
        flights.starts()

        async def story() -> dict[str, str]:
            stream = stream_of(Hub(), before)
            first = asyncio.ensure_future(next_event(stream))
            await asyncio.sleep(0.5)
            await sync_to_async(flights.skips)("EWR", 3)
            event = await first
            await stream.aclose()
            return event

        before = position()
        event = run(story)
        assert (event["event"], event["data"]) == ("changed", "flights")
        assert event["id"] == position() != before

    def test_other_applications_are_neither_named_nor_counted(self, redis: Redis) -> None:
        seen, hidden = Story(application="apple"), Story(application="zebra")
        seen.starts()
        present = str(queries.log_positions()["apple"])

        async def story() -> tuple[list[str], dict[str, str]]:
            stream = stream_of(
                Hub(), present, applications=frozenset({"apple"}), heartbeat_seconds=0.3
            )
            lines = [await anext(stream) for _ in range(2)]
            await sync_to_async(hidden.starts)()
            lines.append(await anext(stream))
            await sync_to_async(seen.skips)("EWR", 3)
            event = await next_event(stream)
            await stream.aclose()
            return lines, event

        lines, event = run(story)
        assert lines[1:] == [": nothing new\n\n"] * 2
        assert event["data"] == "apple"
        assert event["id"] == str(queries.log_positions()["apple"])

    def test_the_page_catches_up_without_events(self, redis: Redis) -> None:
        flights = Story()
        flights.starts()

        async def story() -> dict[str, str]:
            stream = stream_of(Hub(), "1")
            event = await next_event(stream)
            await stream.aclose()
            return event

        assert run(story)["data"] == ALL

    def test_a_page_that_is_up_to_date_is_not_notified(self, redis: Redis) -> None:
        flights = Story()
        flights.starts()
        present = position()

        async def story() -> list[str]:
            stream = stream_of(Hub(), present, heartbeat_seconds=0.2)
            lines = [await anext(stream) for _ in range(3)]
            await stream.aclose()
            return lines

        assert run(story)[1:] == [": nothing new\n\n"] * 2

    def test_one_listener_serves_all_and_ends_with_the_last(self, redis: Redis) -> None:
        flights = Story()

        async def story() -> tuple[int, int, int]:
            hub = Hub()
            streams = [stream_of(hub, "0", heartbeat_seconds=0.2) for _ in range(10)]
            for stream in streams:
                await anext(stream)
            await asyncio.sleep(0.5)
            with_ten = await listeners()
            await sync_to_async(flights.starts)()
            events = [await next_event(stream) for stream in streams]
            for stream in streams:
                await stream.aclose()
            await asyncio.sleep(0.3)
            return with_ten, len(events), await listeners()

        assert run(story) == (1, 10, 0)

    def test_the_stream_needs_a_role(self, client: Client) -> None:
        assert client.get(reverse("live")).status_code == 401
        user = make_user("ben", "viewer")

        async def story() -> tuple[str, str]:
            browser = AsyncClient()
            await browser.aforce_login(user)
            response: Any = await browser.get(reverse("live"), headers={"Last-Event-ID": "7"})
            event = await next_event(chunk.decode() async for chunk in response)
            return response.headers["Content-Type"], event["data"]

        assert run(story) == ("text/event-stream", ALL)

    @pytest.mark.parametrize("end", ["log out", "no role", "deactivated"])
    def test_a_stream_ends_soon_after_its_user_loses_access(
        self, redis: Redis, monkeypatch: pytest.MonkeyPatch, end: str
    ) -> None:
        monkeypatch.setattr(live_stream, "HEARTBEAT_SECONDS", 0.05)
        monkeypatch.setattr(live_stream, "CHECK_SECONDS", 0.0)
        user = make_user("ben", "viewer")

        async def story() -> None:
            browser = AsyncClient()
            await browser.aforce_login(user)
            response: Any = await browser.get(reverse("live"))
            chunks = aiter(response)
            for _ in range(4):
                await anext(chunks)
            if end == "log out":
                await browser.alogout()
            elif end == "no role":
                await user.groups.aclear()
            else:
                await type(user).objects.aupdate(is_active=False)
            async for _ in chunks:
                pass

        run(story)

    def test_connections_do_not_grow_with_the_streams(self, redis: Redis) -> None:
        cookie = logged_in(make_user("ben", "viewer")).cookies["arrester_session"].value
        with web() as url, ExitStack() as streams:
            opened = []
            for number in (2, 18):
                for _ in range(number):
                    opened.append(streams.enter_context(closing(connected(url, cookie))))
                # The listener, and one that waits for the next request.
                assert settled(most=1 + SIZE) <= 1 + SIZE
                # It connects after the first stream has begun.
                assert settled(least=1, most=1, like="LISTEN%") == 1
            # That user's limit: the next window polls.
            assert status(url, cookie) == 429
            for each in opened:
                each.close()
            assert settled(most=0, like="LISTEN%") == 0
            assert settled(most=SIZE) <= SIZE

    def test_streams_that_are_opened_at_once_do_not_exceed_the_limit(self, redis: Redis) -> None:
        user = make_user("ben", "viewer")

        async def story() -> list[int]:
            browser = AsyncClient()
            await browser.aforce_login(user)
            requests = (browser.get(reverse("live")) for _ in range(USER_LIMIT + 10))
            # None of the answers is read: each holds its place.
            responses = await asyncio.gather(*requests)
            return sorted(each.status_code for each in responses)

        assert run(story) == [200] * USER_LIMIT + [429] * 10
        # The unread answers are gone.
        gc.collect()
        assert live_stream.HUB.claim("ben") is not None

    @pytest.mark.parametrize("payload", [None, "hello", "flights x"])
    def test_the_listener_reconnects(
        self,
        payload: str | None,
        redis: Redis,
        services: embedded.Urls,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        flights = Story()
        flights.starts()

        async def story() -> str:
            stream = stream_of(Hub(), "0", heartbeat_seconds=0.2)
            await next_event(stream)
            await sync_to_async(disturb)(services, payload)
            await asyncio.sleep(0.5)
            # It sends missed changes when it listens again, then all later ones.
            await sync_to_async(flights.skips)("EWR", 3)
            await next_event(stream)
            await sync_to_async(flights.skips)("EWR", 3)
            event = await next_event(stream)
            await stream.aclose()
            return event["data"]

        assert run(story) == "flights"
        assert "live pages poll for now" in caplog.text

    def test_a_silently_dropped_connection_is_replaced(
        self, redis: Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        flights = Story()
        flights.starts()

        async def story() -> str:
            async with silenced() as (address, silence):
                monkeypatch.setattr(settings, "DATABASE_URL", address)
                stream = stream_of(Hub(probe_seconds=0.3), "0", heartbeat_seconds=0.2)
                await next_event(stream)
                # Answered probes cause no event.
                assert [await anext(stream) for _ in range(4)] == [": nothing new\n\n"] * 4
                silence()
                await sync_to_async(flights.skips)("EWR", 3)
                event = await next_event(stream)
                await stream.aclose()
                return event["data"]

        assert run(story) == ALL
        assert "PostgreSQL has stopped answering" in caplog.text


@asynccontextmanager
async def silenced() -> AsyncIterator[tuple[str, Callable[[], None]]]:
    """Run a proxy to PostgreSQL; yield its address and a function that makes it silent."""
    real = conninfo_to_dict(settings.DATABASE_URL)
    there = Path(str(real["host"])) / f".s.PGSQL.{real.get('port', 5432)}"
    carrying: list[asyncio.Task[None]] = []
    opened: list[asyncio.StreamWriter] = []

    async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)
        sink.close()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_unix_connection(str(there))
        opened.extend((writer, forth))
        carrying.append(asyncio.create_task(carry(reader, forth)))
        carrying.append(asyncio.create_task(carry(back, writer)))

    def silence() -> None:
        for task in carrying:
            task.cancel()

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        yield make_conninfo(settings.DATABASE_URL, host="127.0.0.1", port=port), silence
    finally:
        silence()
        for writer in opened:
            writer.close()
        server.close()


def disturb(services: embedded.Urls, payload: str | None) -> None:
    """Send an unknown payload; without one, end all connections, as a restart does."""
    connections.close_all()
    if payload is not None:
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT pg_notify('arrester', %s)", [payload])
        return
    with psycopg.connect(services.admin_database, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [DATABASE]
        )


def connected(url: str, cookie: str) -> http.client.HTTPConnection:
    """Open a stream as a logged-in user, and read its first line."""
    connection = _requested(url, cookie)
    assert connection.getresponse().readline().startswith(b"retry:")
    return connection


def status(url: str, cookie: str) -> int:
    """Return the status of a request for a stream."""
    with closing(_requested(url, cookie)) as connection:
        return connection.getresponse().status


def _requested(url: str, cookie: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_SECONDS)
    connection.request("GET", reverse("live"), headers={"Cookie": f"arrester_session={cookie}"})
    return connection


def settled(*, least: int = 0, most: int, like: str = "%") -> int:
    """Return how many connections the web process has whose last statement is like that, once they
    are as many as expected."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        with connections["default"].cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                " AND query LIKE %s",
                [like],
            )
            found = int(cursor.fetchone()[0])
        if least <= found <= most or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


async def listeners() -> int:
    """Return how many connections listen on the test database."""

    def count() -> int:
        with connections["default"].cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE query LIKE 'LISTEN%' AND datname = current_database()"
            )
            return int(cursor.fetchone()[0])

    return await sync_to_async(count)()


def test_a_slow_client_is_notified_of_all_applications() -> None:
    async def story() -> set[str]:
        mailbox = Mailbox()
        for number in range(NAMES_LIMIT + 50):
            mailbox.put(f"application-{number}")
        return await mailbox.take(timeout=PATIENCE_SECONDS)

    assert asyncio.run(story()) == {ALL}


def test_a_mailbox_collects_changed_applications() -> None:
    async def story() -> list[set[str]]:
        mailbox = Mailbox()
        for name in ("flights", "orders", "flights"):
            mailbox.put(name)
        return [await mailbox.take(timeout=PATIENCE_SECONDS), await mailbox.take(timeout=0.01)]

    assert asyncio.run(story()) == [{"flights", "orders"}, set()]

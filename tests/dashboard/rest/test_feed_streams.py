"""The feed as lines of JSON and as server-sent events, on a real LISTEN."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError, connections
from django.test import AsyncClient, Client
from redis import Redis

from arrester.controlplane import access, embedded, models, queries, store
from arrester.controlplane.access.roles import Role
from arrester.dashboard.rest.event_feed import stream
from tests import histories
from tests.controlplane import streams
from tests.dashboard.accounts import grant, make_user, token
from tests.dashboard.story import Story
from tests.histories import APPLICATION
from tests.patience import PATIENCE_SECONDS
from tests.services import DATABASE

T = TypeVar("T")
LINES, SSE = "/api/v1/feed/ndjson", "/api/v1/feed/sse"


@pytest.fixture(autouse=True)
def quick(fresh_database: None, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check a stream at each heartbeat, and send one often."""
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.2)
    monkeypatch.setattr(stream, "CHECK_SECONDS", 0.0)


def run(story: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine and close the connections of its thread."""

    async def whole() -> T:
        try:
            return await asyncio.wait_for(story(), timeout=PATIENCE_SECONDS)
        finally:
            # Close the streams, which have no reader any more.
            gc.collect()
            await asyncio.sleep(0.1)
            await sync_to_async(connections.close_all)()

    return asyncio.run(whole())


async def opened(path: str, key: str, **headers: str) -> Any:
    """Return the response of a stream that has begun."""
    response = await AsyncClient().get(path, headers={"Authorization": f"Token {key}"} | headers)
    assert response.status_code == 200, response.content
    return response


async def lines(response: Any) -> AsyncIterator[dict[str, Any]]:
    """Yield the lines of a stream."""
    async for chunk in response:
        for line in chunk.decode().splitlines():
            yield json.loads(line)


async def sse(response: Any) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Yield the id and the data of each server-sent event."""
    async for chunk in response:
        for block in chunk.decode().split("\n\n"):
            if block.startswith("id: "):
                id, data = block.split("\n")
                yield id.removeprefix("id: "), json.loads(data.removeprefix("data: "))


async def of(found: AsyncIterator[dict[str, Any]], *types: str) -> list[dict[str, Any]]:
    """Return the next lines that are events, up to one of each type in this order."""
    seen: list[dict[str, Any]] = []
    for wanted in types:
        async for line in found:
            if "sequence" in line:
                seen.append(line)
                if line["type"] == wanted:
                    break
    return seen


def viewer() -> str:
    make_user("ben", "viewer")
    return token("ben")


def append(count: int, application: str = APPLICATION) -> None:
    events = [histories.failed(number) for number in range(count)]
    # The requests of a story share its context.
    with access.lifted():
        streams.append(events, received_at=datetime.now(UTC), application=application)


def test_a_stream_has_the_events_of_the_pages_and_then_new_ones() -> None:
    flights, key = Story(), viewer()
    flights.starts()
    flights.pauses("JFK", held=12)
    page = Client().get("/api/v1/feed", headers={"Authorization": f"Token {key}"}).json()["results"]

    async def story() -> tuple[list[Any], list[Any], list[Any]]:
        found = lines(await opened(LINES, key))
        first = [await anext(found) for _ in range(len(page) + 1)]
        await sync_to_async(flights.skips)("EWR", 3)
        later = await of(found, "FailuresCounted")
        events = sse(await opened(SSE, key))
        return first, later, [await anext(events) for _ in range(len(page) + len(later))]

    first, later, events = run(story)
    assert first[:-1] == page
    assert page[-1]["type"] == "RecordsHeld"
    assert [data for _, data in events] == page + later
    # Both continue at a cursor.
    for cursor in (first[-1]["next"], events[len(page) - 1][0]):
        rest = [each.sequence for each in queries.feed(cursor=cursor).events]
        assert rest[: len(later)] == [each["sequence"] for each in later]


def test_the_id_of_each_server_sent_event_is_the_cursor_after_it() -> None:
    key = viewer()
    append(3, "alpha")
    append(2, "beta")

    async def story() -> tuple[list[Any], list[Any]]:
        events = sse(await opened(f"{SSE}?last=500", key))
        every = [await anext(events) for _ in range(5)]
        rests: list[list[Any]] = []
        for id, _ in every[:-1]:
            # A browser repeats its address; the header replaces `last`.
            again = sse(await opened(f"{SSE}?last=500", key, **{"Last-Event-ID": id}))
            rests.append([(await anext(again))[1] for _ in range(4 - len(rests))])
        return every, rests

    every, rests = run(story)
    data = [each for _, each in every]
    assert rests == [data[number:] for number in range(1, 5)]


def test_a_stream_without_follow_ends_after_the_stored_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream.Lines, "portion", 3)
    key = viewer()
    append(8)

    async def story() -> list[Any]:
        return [each async for each in lines(await opened(f"{LINES}?follow=false", key))]

    found = run(story)
    assert [each.get("sequence", "next") for each in found] == [
        *(1, 2, 3, "next", 4, 5, 6, "next", 7, 8, "next"),
    ]
    assert queries.feed(cursor=found[-1]["next"]).events == ()


@pytest.mark.parametrize("path", [LINES, SSE])
def test_a_stream_shows_only_the_applications_of_the_token(path: str) -> None:
    append(1, "seen")
    append(1, "hidden")
    make_user("ben")
    grant("ben", {"seen": Role.VIEWER})
    key = token("ben")

    async def story() -> list[str]:
        response = await opened(path, key)
        chunks = aiter(response)
        found = [(await anext(chunks)).decode()]
        await sync_to_async(append)(1, "hidden")
        await sync_to_async(append)(1, "seen")
        while "seen" not in found[-1] or len(found) == 1:
            found.append((await anext(chunks)).decode())
        return found

    text = "".join(run(story))
    assert text.count('"seen"') == 2
    assert "hidden" not in text


@pytest.mark.parametrize("end", ["revoked", "no role", "fewer applications"])
def test_a_stream_ends_soon_after_its_token_loses_access(end: str) -> None:
    user = make_user("ben", "viewer")
    key = token("ben")
    append(1)

    async def story() -> None:
        response = await opened(LINES, key)
        chunks = aiter(response)
        for _ in range(3):
            await anext(chunks)
        if end == "revoked":
            await models.RestToken.objects.all().adelete()
        elif end == "no role":
            await user.groups.aclear()
        else:
            await models.RestToken.objects.aupdate(applications=[APPLICATION])
        async for _ in chunks:
            pass

    run(story)


def test_a_stream_of_a_page_ends_soon_after_its_user_logs_out() -> None:
    user = make_user("ben", "viewer")
    append(1)

    async def story() -> str:
        browser = AsyncClient()
        await browser.aforce_login(user)
        response: Any = await browser.get(SSE)
        chunks = aiter(response)
        first: str = (await anext(chunks)).decode()
        # The checks while the user is logged in.
        for _ in range(2):
            await anext(chunks)
        await browser.alogout()
        async for _ in chunks:
            pass
        return first

    assert '"sequence":1,' in run(story)


def test_a_stream_continues_after_postgresql_restarts(services: embedded.Urls) -> None:
    key = viewer()
    append(3)

    async def story() -> list[int]:
        found = lines(await opened(LINES, key))
        seen = [each["sequence"] for each in await of(found, *["RecordFailed"] * 3)]
        await sync_to_async(end_connections)(services)
        await sync_to_async(append)(2)
        return seen + [each["sequence"] for each in await of(found, *["RecordFailed"] * 2)]

    assert run(story) == [1, 2, 3, 4, 5]


def end_connections(services: embedded.Urls) -> None:
    connections.close_all()
    with psycopg.connect(services.admin_database, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [DATABASE]
        )


def test_a_stream_waits_while_postgresql_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """No event is skipped: the portion that could not be read is read again."""
    key, read, away = viewer(), stream.Follower.read, [False]
    append(1)

    def unreachable(self: Any, **given: Any) -> queries.Feed:
        if away[0]:
            raise OperationalError("PostgreSQL is away")
        return read(self, **given)

    monkeypatch.setattr(stream.Follower, "read", unreachable)

    async def story() -> list[Any]:
        found = lines(await opened(LINES, key))
        first = [await anext(found), await anext(found)]
        away[0] = True
        await sync_to_async(append)(1)
        first += [await anext(found), await anext(found), await anext(found)]
        away[0] = False
        return first + await of(found, "RecordFailed")

    found = run(story)
    assert [each.get("sequence") for each in found] == [1, None, None, None, None, 2]
    assert len({each["next"] for each in found[1:-1]}) == 1


@pytest.mark.parametrize("path", [LINES, SSE])
def test_events_dropped_during_a_stream_end_it_with_the_reason(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream.Lines, "portion", 1)
    monkeypatch.setattr(stream.ServerSentEvents, "portion", 1)
    key, now = viewer(), datetime.now(UTC)
    append(5)

    async def story() -> tuple[str, str]:
        chunks = aiter(await opened(path, key))
        first = (await anext(chunks)).decode()
        await sync_to_async(drop)(now)
        rest = [each.decode() async for each in chunks]
        return first, rest[-1]

    def drop(now: datetime) -> None:
        store.save_base(APPLICATION, 3, [], received_at=now - timedelta(days=1), now=now)

    first, last = run(story)
    assert '"sequence":1,' in first
    assert "problem" in last and '"sequence":3' in last
    # A browser that continues is answered with the status, and gives up.
    if path == SSE:
        id = first.split("\n")[0].removeprefix("id: ")
        headers = {"Authorization": f"Token {key}", "Last-Event-ID": id}
        assert Client().get(SSE, headers=headers).status_code == 410


def test_errors_before_the_first_event_have_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    key = viewer()

    def status(path: str, **headers: str) -> int:
        return Client().get(path, headers=headers).status_code

    own = {"Authorization": f"Token {key}", "Accept": "text/event-stream"}
    assert status(SSE) == 401
    assert Client().head(LINES, headers=own).status_code == 405
    assert status(f"{SSE}?cursor=x", **own) == 400
    assert status(f"{LINES}?last=1&cursor=x", **own) == 400
    monkeypatch.setattr("arrester.dashboard.live.hub.USER_LIMIT", 0)
    assert status(LINES, **own) == 429

"""The time limit of request headers, with uvicorn's HTTP on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml
from uvicorn import Config
from uvicorn.server import ServerState

from arrester.controlplane.management.commands import up
from arrester.controlplane.web.http_protocol import TimedHeaders
from tests.patience import PATIENCE_SECONDS
from tests.services import REPOSITORY

LIMIT_SECONDS = 0.2
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
OPTIONS = ["--http", f"{TimedHeaders.__module__}:{TimedHeaders.__name__}"]
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ShortTime(TimedHeaders):
    header_seconds = LIMIT_SECONDS


async def slow_answer(scope: Any, receive: Any, send: Any) -> None:
    """Answer after more time than headers have."""
    await asyncio.sleep(2 * LIMIT_SECONDS)
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def connected() -> AsyncIterator[Connection]:
    """Connect to a server whose headers have a short time."""
    config, state = Config(slow_answer, lifespan="off", log_config=None), ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: ShortTime(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        try:
            yield reader, writer
        finally:
            writer.close()


async def answered(connection: Connection) -> None:
    """Send a request, and receive its answer."""
    reader, writer = connection
    writer.write(REQUEST)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
    assert await reader.readexactly(2) == b"ok"


async def closed_while_sending(connection: Connection) -> None:
    """Send headers byte by byte, without an end, until the server closes the connection."""
    reader, writer = connection
    end = asyncio.ensure_future(reader.read())
    while not end.done():
        writer.write(b"x")
        await asyncio.sleep(LIMIT_SECONDS / 10)
    assert await end == b""


def run(story: Callable[[Connection], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), connected() as connection:
            await story(connection)

    asyncio.run(whole())


def test_a_connection_whose_headers_do_not_end_is_closed() -> None:
    run(closed_while_sending)


def test_a_connection_without_a_request_is_closed() -> None:
    async def story(connection: Connection) -> None:
        assert await connection[0].read() == b""

    run(story)


def test_an_answer_may_take_longer_and_a_further_request_has_its_own_time() -> None:
    async def story(connection: Connection) -> None:
        for _ in range(2):
            await answered(connection)
        await closed_while_sending(connection)

    run(story)


def _command(place: str) -> list[str]:
    """Return the command of the web process in a file of the repository."""
    if place == "docker-compose.yml":
        compose = yaml.safe_load((REPOSITORY / place).read_text())
        return [str(word) for word in compose["services"]["web"]["command"]]
    [line] = [
        each for each in (REPOSITORY / place).read_text().splitlines() if "asgi:application" in each
    ]
    return [str(word) for word in yaml.safe_load(line.removeprefix("CMD "))]


@pytest.mark.parametrize("place", ["docker-compose.yml", "Dockerfile"])
def test_each_web_process_limits_the_time(place: str) -> None:
    command = _command(place)
    begin = command.index("--http")
    assert command[begin : begin + 2] == OPTIONS


def test_the_web_process_of_up_limits_the_time(settings: Any) -> None:
    command = up._server_commands(settings.ENVIRONMENT)["web"]
    begin = command.index("--http")
    assert command[begin : begin + 2] == OPTIONS

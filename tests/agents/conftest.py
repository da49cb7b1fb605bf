from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.agents.redis_server import FoldingSide, Server, running

if TYPE_CHECKING:
    pass


@pytest.fixture(scope="session")
def redis_process() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def redis_server(redis_process: Server) -> Iterator[Server]:
    """Return a Redis that is up and empty; the test may stop it and start it again."""
    redis_process.client.flushall()
    yield redis_process
    if not redis_process.process.alive():
        redis_process.start()


@pytest.fixture
def folding(redis_server: Server) -> FoldingSide:
    return FoldingSide(redis_server.client)

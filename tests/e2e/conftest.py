"""The whole product for one test, on the session's servers and a fresh database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from redis import Redis

from arrester.controlplane import actions, embedded
from tests.dashboard.accounts import token
from tests.e2e.driver import APPLICATION
from tests.e2e.stack import Stack, make_input

OPERATOR, PASSWORD = "ana", "a password for tests"


@pytest.fixture
def stack(fresh_database: embedded.Urls, redis: Redis, tmp_path: Path) -> Iterator[Stack]:
    """Run web, wake and worker; the test starts drivers. An operator may log in."""
    user = User.objects.create_user(OPERATOR, password=PASSWORD)
    user.groups.add(Group.objects.get_or_create(name="operator")[0])
    credential = actions.add_agent_credential(APPLICATION, actor=OPERATOR)
    stack = Stack(folder=tmp_path, token=token(OPERATOR), redis_url=credential.redis_url)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, Any]]:
    """Write the driver's input, and return its rows."""
    return make_input(tmp_path)

"""Fixtures: users, browsers and an application, on real servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connections
from django.test import Client
from pytest_django.plugin import DjangoDbBlocker
from redis import Redis

from arrester.controlplane import embedded
from arrester.controlplane.redis import redis_client
from arrester.dashboard.components import attention
from tests import services as running_services
from tests.dashboard.accounts import logged_in, make_user
from tests.dashboard.browser import web
from tests.dashboard.story import Story


@pytest.fixture(autouse=True)
def no_kept_number_of_problems() -> None:
    """Forget the number of the test before."""
    attention._kept.clear()


@pytest.fixture(scope="module")
def shared_data(
    services: embedded.Urls, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    """Let a fixture of a module commit data that none of the module's tests changes."""
    redis_client.client().flushall()
    with django_db_blocker.unblock():
        yield
        redis_client.client().flushall()
        connections.close_all()
        running_services.clone(services)


@pytest.fixture
def operator(db: None) -> Client:
    """Return the client of an operator."""
    return logged_in(make_user("ana", "operator"))


@pytest.fixture
def viewer(db: None) -> Client:
    """Return the client of a viewer."""
    return logged_in(make_user("ben", "viewer"))


@pytest.fixture
def flights(db: None, redis: Redis) -> Story:
    """Return an application whose pipeline runs."""
    story = Story()
    story.starts()
    return story


@pytest.fixture(scope="module")
def server(services: embedded.Urls, django_db_setup: None) -> Iterator[str]:
    """Run a web process against the test database."""
    with web() as url:
        yield url

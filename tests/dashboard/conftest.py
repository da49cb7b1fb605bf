"""Fixtures: users, browsers and an application, on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone
from playwright.sync_api import Browser, Page
from redis import Redis

from arrester.controlplane import actions, embedded, queries
from arrester.controlplane.history import erasure
from arrester.controlplane.roles import TokenScope
from arrester.dashboard.components import attention, failure_rates
from tests.dashboard.browser import PASSWORD, chromium, web, window
from tests.dashboard.story import Story


@pytest.fixture(autouse=True)
def no_kept_number_of_problems() -> None:
    """Forget the number of the test before."""
    attention._kept.clear()


def make_user(name: str, *groups: str) -> User:
    """Create a user in the given groups."""
    user = User.objects.create(username=name, password=_hashed())
    user.groups.set(Group.objects.get_or_create(name=group)[0] for group in groups)
    return user


def make_superuser(name: str) -> User:
    """Create a superuser as the owner of the tables; outside of a transaction."""
    with erasure.as_owner():
        return User.objects.create(username=name, password=_hashed(), is_superuser=True)


@cache
def _hashed() -> str:
    """Return the hash of the password, which takes a quarter of a second, once."""
    return make_password(PASSWORD)


def logged_in(user: User) -> Client:
    """Return a client that is logged in."""
    client = Client()
    client.force_login(user)
    return client


def token(account: str, name: str = "tests", scope: TokenScope = TokenScope.OPERATE) -> str:
    """Return a new REST token of an account."""
    return actions.create_token(account, name, actor=account, scope=scope).text


def tiles() -> list[attention.Tile]:
    """Return the tiles of the overview without a time range in its URL."""
    rate = failure_rates.rate(failure_rates.span({}, now=timezone.now()))
    return attention.tiles(queries.overview(), rate)


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
def browser() -> Iterator[Browser]:
    """Run Chromium for the module."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def server(services: embedded.Urls, django_db_setup: None) -> Iterator[str]:
    """Run a web process against the test database."""
    with web() as url:
        yield url


@pytest.fixture
def story(browser: Browser, fresh_database: embedded.Urls, redis: Redis) -> Story:
    """Return an application whose pipeline runs, with a user of each role."""
    for name, role in (("ana", "operator"), ("ben", "viewer"), ("ada", "admin")):
        make_user(name, role)
    story = Story()
    story.starts()
    return story


@pytest.fixture
def page(browser: Browser, server: str, story: Story) -> Iterator[Page]:
    """Open a window of the operator."""
    with window(browser, server, "ana") as page:
        yield page


@pytest.fixture
def viewers_page(browser: Browser, server: str, story: Story) -> Iterator[Page]:
    """Open a window of the viewer."""
    with window(browser, server, "ben") as page:
        yield page

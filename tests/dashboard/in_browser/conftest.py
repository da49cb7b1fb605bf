"""Fixtures: one browser and one web process for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page
from redis import Redis

from arrester.controlplane import embedded
from tests.dashboard.browser import Windows, chromium, web
from tests.dashboard.story import Story, started_with_accounts


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Run Chromium."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def server(services: embedded.Urls, django_db_setup: None) -> Iterator[str]:
    """Run a web process against the test database; it may ask workers for records of files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARRESTER_DEAD_LETTERS_ROOTS", "/data/dlq")
        with web(application="tests.dashboard.patient_asgi:application") as url:
            yield url


@pytest.fixture(scope="package")
def windows(browser: Browser, server: str) -> Windows:
    """Return the windows of the browser on the web process."""
    return Windows(browser, server)


@pytest.fixture
def story(browser: Browser, fresh_database: embedded.Urls, redis: Redis) -> Story:
    """Return an application whose pipeline runs, with a user of each role."""
    return started_with_accounts()


@pytest.fixture
def page(windows: Windows, story: Story) -> Iterator[Page]:
    """Open a window of the operator."""
    with windows.open("ana") as page:
        yield page

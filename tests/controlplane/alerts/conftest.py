"""Receivers of messages, and an application with a paused task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.conf import settings
from redis import Redis

from arrester.controlplane import alerts
from arrester.controlplane.alerts import outbox
from tests.controlplane.alerts import receivers


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the product a folder on a disk with space, however full that of the tests is."""

    class Usage:
        used, free = 25, 75

    monkeypatch.setattr(settings, "ENVIRONMENT", replace(settings.ENVIRONMENT, home=tmp_path))
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)


@pytest.fixture
def receiver() -> Iterator[receivers.Receiver]:
    """Run an HTTP server."""
    with receivers.http_receiver() as receiver:
        yield receiver


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[receivers.Mailbox]:
    """Run an SMTP server, and configure it."""
    with receivers.mail_server() as mailbox:
        environment = replace(settings.ENVIRONMENT, smtp_url=mailbox.url)
        monkeypatch.setattr(settings, "ENVIRONMENT", environment)
        yield mailbox


class Clock:
    """The time of the tests; it passes only by `update`."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def update(self, *, after: timedelta = timedelta(0)) -> None:
        """Let time pass, find the alerts, and send what is due."""
        self.now += after
        assert alerts.update(now=self.now)
        for channel in outbox.channels_to_send(now=datetime.now(UTC)):
            outbox.send_pending(channel)


@pytest.fixture
def clock(fresh_database: object, redis: Redis) -> Clock:
    """Return the clock of an empty product."""
    return Clock()

"""A wrong clock of a driver, or of the server."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from django.test import Client
from django.urls import reverse

from arrester.controlplane import actions
from arrester.controlplane.outbound import clock_check
from arrester.controlplane.redis import redis_client
from arrester.domain.identity import redis_keys
from arrester.domain.wire import codec
from tests.dashboard.story import Story


def beat(story: Story, ahead: timedelta) -> None:
    heartbeat = codec.Heartbeat(at=datetime.now(UTC) + ahead, status="RUNNING")
    key = redis_keys.heartbeat(story.application, story.instance)
    redis_client.client().set(key, msgspec.json.encode(heartbeat), ex=redis_keys.LOST_AFTER_SECONDS)


def test_a_wrong_clock_is_on_the_page_and_in_the_log(
    flights: Story, viewer: Client, caplog: pytest.LogCaptureFixture
) -> None:
    clock_check._reported.clear()
    caplog.set_level(logging.WARNING, logger=clock_check.__name__)
    beat(flights, timedelta(seconds=1))
    actions.watch()
    assert "NTP" not in viewer.get(reverse("instances")).content.decode()
    for days in (40, -40):
        caplog.clear()
        beat(flights, timedelta(days=days))
        for _ in range(2):
            actions.watch()
        [line] = [each for each in caplog.messages if "clock" in each]
        assert f"instance {flights.instance} differs" in line and f"by {days * 86400:+}"[:8] in line
        page = viewer.get(reverse("instances")).content.decode()
        assert "The clock of 1 instance on this page differs" in page and "NTP" in page
        beat(flights, timedelta(0))
        actions.watch()

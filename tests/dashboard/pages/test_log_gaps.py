"""PostgreSQL is restored from an older backup: the missing events are noticed once, and shown."""

from __future__ import annotations

import logging

import pytest
from django.db import connections
from django.test import Client
from django.urls import reverse
from redis import Redis

from arrester.controlplane import embedded, queries
from tests import services
from tests.dashboard.accounts import logged_in, make_user
from tests.dashboard.story import Story

BACKUP = "arrester_backup"


def test_events_that_an_older_backup_lacks_are_shown(
    fresh_database: embedded.Urls, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    story, other = Story(), Story(application="orders")
    client: Client = logged_in(make_user("ada", "operator"))
    for each in (story, other):
        each.starts()
    before = queries.log_positions()[story.application]
    connections.close_all()
    services.clone(fresh_database, BACKUP, source=services.DATABASE)
    try:
        for key in ("JFK", "EWR", "LGA"):
            story.pauses(key)
        lost = queries.log_positions()[story.application] - before
        connections.close_all()
        services.clone(fresh_database, source=BACKUP)
    finally:
        services.drop(fresh_database, BACKUP)
    caplog.set_level(logging.ERROR, "arrester")
    # With the next events of each application.
    for each in (story, other, story):
        each.pauses("JFK")
    [gap] = queries.log_gaps()
    assert (gap.application, gap.missing, gap.before) == (story.application, lost, before)
    assert [each.levelname for each in caplog.records if "is older than" in each.message] == [
        "ERROR"
    ]
    [finding] = [each for each in queries.findings() if each.check == "log"]
    assert finding.level == "warning"
    assert finding.value.startswith(f"{story.application}: {lost} events are missing")
    page = client.get(reverse("application", args=[story.application])).content.decode()
    assert f"{lost} events are missing" in page
    other_page = client.get(reverse("application", args=[other.application])).content.decode()
    assert "events are missing" not in other_page

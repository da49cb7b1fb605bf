"""Chart buckets: failed records counted by the minute and the hour."""

from __future__ import annotations

import importlib
from collections import Counter
from datetime import UTC, datetime

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings

from arrester.controlplane import models
from arrester.controlplane.views.chart_buckets import Buckets
from arrester.domain.events import Event
from arrester.domain.wire.failure_columns import expand_stored
from tests import histories
from tests.controlplane import streams


@given(histories.floods)
def test_columns_are_counted_in_the_minutes_of_their_events(events: list[Event]) -> None:
    stored = histories.stored_elements(events)
    of_columns, of_events = Buckets(histories.APPLICATION), Buckets(histories.APPLICATION)
    of_columns.count(stored)
    of_events.count(expand_stored(stored))
    assert of_columns == of_events


@pytest.mark.django_db
@given(events=histories.histories)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
def test_stages_have_the_sums_of_minutes_also_after_the_migration(events: list[Event]) -> None:
    streams.append(events, received_at=datetime.now(UTC))
    expected: Counter[tuple[datetime, str, str]] = Counter()
    for each in models.MinuteCount.objects.all():
        hour = each.minute.replace(minute=0)
        expected[hour, each.pipeline, each.stage] += each.count
    assert stages() == expected
    models.HourStage.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute(importlib.import_module("arrester.migrations.0034_hour_stage").FILL)
    assert stages() == expected


def stages() -> dict[tuple[datetime, str, str], int]:
    rows = models.HourStage.objects.all()
    return {(each.hour, each.pipeline, each.stage): each.count for each in rows}

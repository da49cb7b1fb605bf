"""Changes of held records per minute."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings

from arrester.controlplane import models
from arrester.controlplane.history import retention
from arrester.domain.events import Event
from tests import histories
from tests.controlplane import streams

pytestmark = pytest.mark.django_db


@given(events=histories.histories)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
def test_the_minutes_of_an_hour_have_its_change(events: list[Event]) -> None:
    streams.append(events, received_at=datetime.now(UTC))
    by_hour: Counter[tuple[object, ...]] = Counter()
    for each in models.HeldMinute.objects.all():
        hour = each.minute.replace(minute=0)
        by_hour[(each.application, hour, each.pipeline, each.checkpoint)] += each.change
    of_hours = {
        (each.application, each.hour, each.pipeline, each.checkpoint): each.change
        for each in models.HeldChange.objects.all()
    }
    assert by_hour == of_hours


def test_minutes_are_dropped_with_the_days_of_the_log_and_hours_stay() -> None:
    now = datetime.now(UTC)
    old, new = now - timedelta(days=40), now - timedelta(days=2)
    streams.append(
        [
            Event(occurred_at=at, data=each.data, run=each.run, instance=each.instance)
            for at, count in ((old, 5), (new, 7))
            for each in [histories.held(count)]
        ],
        received_at=now,
    )
    retention.retain(days=30, replay_days=30)
    assert [each.change for each in models.HeldMinute.objects.all()] == [2]
    assert sorted(each.change for each in models.HeldChange.objects.all()) == [2, 5]

"""The flow of pipelines, per minute and per hour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings

from arrester.controlplane import models
from arrester.controlplane.history import retention
from arrester.controlplane.views import flow
from arrester.domain.durations import KEYS, key_of_packed
from arrester.domain.events import FLOW_COUNTS, Event, FlowMeasured, Run
from tests import histories
from tests.controlplane import streams
from tests.histories import INSTANCE

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
RUN = Run(pipeline="delays", checkpoint="cp-1", epoch=3)


def measured(minute: datetime, *, run: Run = RUN, **values: object) -> Event:
    data = FlowMeasured(minute=minute, **values)  # type: ignore[arg-type]  # by the caller's names
    at = minute + timedelta(minutes=1)
    return Event(occurred_at=at, data=data, instance=INSTANCE, run=run)


def rows(model: type[models.FlowMinute | models.FlowHour] = models.FlowMinute) -> list[object]:
    return [
        (each.records_in, each.held, unpacked(each.durations), each.backlog, each.last_batch_at)
        for each in model.objects.order_by("pk")
    ]


def unpacked(numbers: list[int]) -> dict[str, int]:
    return {key_of_packed(each % KEYS): each // KEYS for each in numbers}


def test_events_of_one_minute_are_added_and_the_newest_backlog_is_kept() -> None:
    late = NOON + timedelta(seconds=59)
    first = measured(NOON, records_in=5, durations={"total:3": 2}, backlog=9, last_batch_at=NOON)
    again = measured(NOON, records_in=2, held=1, durations={"total:3": 1, "write:0": 4})
    streams.append([first, again], received_at=NOON)
    streams.append([measured(NOON, records_in=1, backlog=0, last_batch_at=late)], received_at=NOON)
    streams.append([measured(NOON + timedelta(minutes=1), records_in=30)], received_at=NOON)
    assert rows() == [
        (8, 1, {"total:3": 3, "write:0": 4}, 0, late),
        (30, 0, {}, None, None),
    ]
    assert rows(models.FlowHour) == [(38, 1, {"total:3": 3, "write:0": 4}, 0, late)]


def test_checkpoints_of_a_pipeline_are_counted_separately() -> None:
    other = Run(pipeline="delays", checkpoint="cp-2", epoch=1)
    events = [measured(NOON, records_in=1), measured(NOON, run=other, records_in=2)]
    streams.append(events, received_at=NOON)
    assert rows() == [(1, 0, {}, None, None), (2, 0, {}, None, None)]


def test_sums_end_at_the_largest_number() -> None:
    most = 2**63 - 1
    streams.append(
        [measured(NOON, records_in=most), measured(NOON, records_in=5)], received_at=NOON
    )
    streams.append([measured(NOON, records_in=most)], received_at=NOON)
    assert [row[0] for row in rows()] == [most]  # type: ignore[index]


def test_minutes_go_with_their_events_and_hours_later() -> None:
    streams.append([measured(NOON, records_in=1)], received_at=NOON)
    later = NOON + timedelta(days=31)
    retention.retain(days=30, replay_days=30, now=later)
    assert (rows(), len(rows(models.FlowHour))) == ([], 1)
    flow.forget(minutes_before=later, hours_before=NOON + retention.CHART_HISTORY)
    assert len(rows(models.FlowHour)) == 0


@given(events=histories.histories)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
def test_minutes_and_hours_have_the_sum_of_all_events(events: list[Event]) -> None:
    models.FlowMinute.objects.all().delete()
    models.FlowHour.objects.all().delete()
    streams.append(events, received_at=datetime.now(UTC))
    data = [each.data for each in events if isinstance(each.data, FlowMeasured)]
    for model in (models.FlowMinute, models.FlowHour):
        for name in FLOW_COUNTS:
            stored = sum(getattr(each, name) for each in model.objects.all())
            assert stored == sum(getattr(each, name) for each in data)

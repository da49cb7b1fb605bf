"""Chart buckets: failed records counted by the minute and the hour."""

from __future__ import annotations

from hypothesis import given

from arrester.controlplane.views.chart_buckets import Buckets
from arrester.domain.events import Event
from arrester.domain.wire.failure_columns import expand_stored
from tests import histories


@given(histories.floods)
def test_columns_are_counted_in_the_minutes_of_their_events(events: list[Event]) -> None:
    stored = histories.stored_elements(events)
    of_columns, of_events = Buckets(histories.APPLICATION), Buckets(histories.APPLICATION)
    of_columns.count(stored)
    of_events.count(expand_stored(stored))
    assert of_columns == of_events

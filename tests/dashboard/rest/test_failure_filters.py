"""REST: failures by response, instance, key, record and words of their message."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import pytest
from django.test import Client
from msgspec.structs import replace

from arrester.controlplane.queries.failure_history import filtered_failures
from arrester.domain.events import Body, FinalResponse, RecordFailed
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, FAILURE

pytestmark = pytest.mark.django_db
OTHER = UUID(int=7)
ROWS = 60


@pytest.fixture(autouse=True)
def failures() -> None:
    """Append failures of two keys, responses and instances in turn."""
    events = []
    for number in range(ROWS):
        text = f"late {number} min: gate {'A' if number % 2 else 'B'}"
        failed = RecordFailed(
            task="JFK" if number % 2 else "LGA",
            position=number,
            key=f"flight-{number % 10}",
            failure=replace(FAILURE, message=text),
            response=FinalResponse.PAUSE if number % 3 else FinalResponse.CONTINUE,
        )
        event = histories.event(failed, body=Body(record={"message": "gate A", "key": "flight-3"}))
        events.append(event if number % 4 else replace(event, instance=OTHER))
    streams.append(events, received_at=datetime.now(UTC))


def positions(viewer: Client, **filters: Any) -> list[int]:
    """Return the positions of all pages, and check the values that the filters have."""
    found: list[int] = []
    cursor: dict[str, str] = {}
    while True:
        query = urlencode(filters | cursor)
        answer = viewer.get(f"/api/v1/failures?{query}")
        assert answer.status_code == 200, answer.content
        page = answer.json()
        for row in page["results"]:
            shown = {name: row[name] for name in filters if name in row}
            assert shown == {name: str(filters[name]) for name in shown}
            found.append(row["first_position"])
        if page["next"] is None:
            return found
        cursor = {"cursor": page["next"]}


@pytest.mark.parametrize("limit", [7, 500])
@pytest.mark.parametrize("part", [3, 500])
def test_each_filter_finds_all_of_its_failures(
    viewer: Client, monkeypatch: pytest.MonkeyPatch, limit: int, part: int
) -> None:
    monkeypatch.setattr(filtered_failures, "_PART", part)
    monkeypatch.setattr(filtered_failures, "_MOST", 4 * part)
    every = range(ROWS)
    expected: list[tuple[dict[str, Any], list[int]]] = [
        ({"response": "CONTINUE"}, [n for n in every if n % 3 == 0]),
        ({"instance": OTHER}, [n for n in every if n % 4 == 0]),
        ({"key": "JFK"}, [n for n in every if n % 2]),
        ({"key": "JFK", "response": "PAUSE"}, [n for n in every if n % 2 and n % 3]),
        ({"key": "none"}, []),
        ({"record_key": "flight-3"}, [n for n in every if n % 10 == 3]),
        ({"record_key": "flight"}, []),
        ({"text": "min: gate A"}, [n for n in every if n % 2]),
        ({"text": "gate min"}, []),
        ({"text": "message"}, []),
        ({"text": "gate B", "record_key": "flight-4"}, [n for n in every if n % 10 == 4]),
        ({"text": "gate B", "instance": OTHER}, [n for n in every if n % 4 == 0]),
    ]
    for filters, wanted in expected:
        found = positions(viewer, application=APPLICATION, limit=limit, **filters)
        assert sorted(found) == wanted, filters


def test_wrong_values_are_named(viewer: Client) -> None:
    for query, param in (("response=RETRY", "response"), ("instance=x", "instance")):
        answer = viewer.get(f"/api/v1/failures?{query}")
        assert (answer.status_code, answer.json()["param"]) == (400, param)

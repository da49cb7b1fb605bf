"""Requests for failed records with wrong or odd parameters are answered, or refused as such."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from django.test import Client
from msgspec.structs import replace

from arrester.domain.events import Body, FinalResponse, RecordFailed
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, FAILURE

pytestmark = pytest.mark.django_db


def append() -> None:
    """Append a failed record with odd names, one without a position, and one without a record."""
    failed = RecordFailed(
        task=None, position=None, failure=replace(FAILURE), response=FinalResponse.FAIL
    )
    odd = {"": "", "key": {"position": "\0 <b>"}, "a.b:c": "w" * 200_000, "value": "[" * 90_000}
    bodies = [Body(record=odd), Body(erased=True), Body(unreadable="cut"), None]
    events = [histories.event(failed, body=body) for body in bodies]
    at = replace(failed, task="JFK", position=2**63 - 1, key="")
    streams.append([*events, histories.event(at)], received_at=datetime.now(UTC))


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 400),
        ("q=", 400),
        ("q=%00", 400),
        ("q=a:%00", 400),
        ("q=position:1 task:%00", 400),
        ("q=%ED%A0%80x", 200),
        ("q=%FF", 400),
        (f"q={'x' * 501}", 400),
        ("q=JFK&limit=0", 400),
        ("q=JFK&limit=x", 400),
        ("q=JFK&limit=100000", 400),
        ("q=JFK&cursor=abc", 400),
        ("q=JFK&nothing=1", 400),
        ("q=JFK&application=%00", 400),
        ("q=JFK&application=missing", 404),
        ("q=position:9223372036854775807", 200),
        ("q=position:9223372036854775808", 200),
        ("q=error", 200),
        ("q=" + quote("%s {} < & '\\") + "x", 200),
    ],
)
def test_a_search_is_answered_or_refused(viewer: Client, query: str, status: int) -> None:
    append()
    answer = viewer.get(f"/api/v1/records?{query}")
    assert answer.status_code == status, answer.content[:300]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 200),
        ("q=%00", 400),
        ("q=position:1 task:%00", 400),
        ("q=JF", 200),
        ("q=%E2%80%94", 200),
        ("q=position:9223372036854775807", 200),
        ("q=JFK&after=abc", 400),
        (f"q={'x' * 501}", 400),
    ],
)
@pytest.mark.parametrize("in_dialog", [True, False])
def test_the_page_is_shown_or_refused(
    viewer: Client, query: str, status: int, *, in_dialog: bool
) -> None:
    append()
    headers = {"HX-Request": "true"} if in_dialog else {}
    answer = viewer.get(f"/search?{query}", headers=headers)
    assert answer.status_code == status, answer.content[:300]


@pytest.mark.parametrize("position", [1, 2, 3, 4, 5])
def test_a_record_without_position_or_record_has_a_page(viewer: Client, position: int) -> None:
    append()
    assert viewer.get(f"/api/v1/records/{APPLICATION}/{position}").status_code == 200
    assert viewer.get(f"/records/{APPLICATION}/{position}").status_code == 200
    assert viewer.get(f"/api/v1/records/{APPLICATION}/{10**30}").status_code in (400, 404)
    assert viewer.get(f"/api/v1/records/{APPLICATION}/0").status_code == 404

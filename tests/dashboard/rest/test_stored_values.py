"""Stored values that JSON does not have, and pages of very large events."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any, NoReturn

import msgspec
import pytest
from django.test import Client
from msgspec.structs import replace

from arrester.controlplane import queries, store
from arrester.domain.events import Body, FinalResponse, RecordFailed, ThreadStarted
from arrester.domain.wire import bodies, codec
from tests import histories
from tests.controlplane import streams
from tests.dashboard.story import Story
from tests.histories import APPLICATION, FAILURE

#: What a foreign sender can pack into a record, and what is shown of it.
STRANGE: dict[str, Any] = {
    "delay": math.inf,
    "wind": [1.5, -math.inf, {"gust": math.nan}],
    "raw": b"\xff\x00",
    "code": msgspec.msgpack.Ext(5, b"x"),
    "parts": {7: True, "none": None},
}
SHOWN = {
    "delay": "inf",
    "wind": [1.5, "-inf", {"gust": "nan"}],
    "raw": "base64:/wA=",
    "code": "base64:eA==",
    "parts": {"7": True, "none": None},
}


def read(client: Client, path: str) -> Any:
    """Return the JSON of an endpoint, read by a strict parser."""

    def refuse(name: str) -> NoReturn:
        raise AssertionError(f"{name} is no JSON")

    response = client.get(f"/api/v1/{path}")
    assert response.status_code == 200, response.content
    return json.loads(response.content, parse_constant=refuse)


@pytest.mark.parametrize("share", [math.inf, -math.inf, math.nan])
def test_a_stored_share_that_is_no_json_is_null(db: None, viewer: Client, share: float) -> None:
    policy = replace(histories.POLICY, outage_share=share)
    events = [histories.event(ThreadStarted()), histories.event(policy)]
    streams.append(events, received_at=datetime.now(UTC))
    for path in ("runs", "runs?as_of=@2"):
        (run,) = read(viewer, f"applications/{APPLICATION}/{path}")["results"]
        assert run["policy"]["outage_share"] is None
    described = read(viewer, "feed")["results"][1]
    assert described["type"] == "PipelineDescribed"
    assert described["data"]["outage_share"] is None
    for tab in ("?tab=policy", "?as_of=@2"):
        assert viewer.get(f"/applications/{APPLICATION}{tab}").status_code == 200


def test_values_of_a_record_that_are_no_json_are_texts() -> None:
    packed = codec.compressed(msgspec.msgpack.encode([{"record": STRANGE}]))
    body = bodies.decode_body(packed, 0)
    assert body == Body(record=SHOWN)


def test_a_record_with_values_that_are_no_json_is_shown(flights: Story, viewer: Client) -> None:
    task = flights.pauses("JFK", record=STRANGE)
    flights.skips("EWR", 1)
    page = viewer.get(f"/tasks/{task.digest}")
    assert page.status_code == 200 and "base64:eA==" in page.content.decode()


def test_a_page_of_the_feed_ends_by_the_bytes_of_what_a_batch_unpacks_to(
    db: None, viewer: Client
) -> None:
    number, message = 500, "x" * 20_000
    data = RecordFailed(
        task="JFK",
        position=1,
        failure=replace(FAILURE, message=message),
        response=FinalResponse.CONTINUE,
    )
    events = [histories.event(replace(data, position=each)) for each in range(number)]
    assert len(codec.pack(events).heads) < store.log.FOLLOWING_BYTES / 50
    streams.append(events, received_at=datetime.now(UTC))

    found, cursor = 0, ""
    while found < number:
        response = viewer.get(f"/api/v1/feed?limit={number}{cursor}")
        page = response.json()
        assert len(response.content) < 1.5 * store.log.FOLLOWING_BYTES
        assert page["results"] and page["more"] == (found + len(page["results"]) < number)
        found += len(page["results"])
        cursor = f"&cursor={page['next']}"
    assert found == number
    assert len(queries.feed(limit=number).events) < number

"""The events of a time range as a Parquet file."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError
from django.test import Client

from arrester.controlplane import queries, store
from arrester.controlplane.queries import event_table
from arrester.domain.errors import BeforeHistory
from arrester.domain.events import Event
from tests import histories
from tests.controlplane import streams
from tests.dashboard.story import Story
from tests.histories import APPLICATION

PATH = "/api/v1/feed/parquet"
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def exported(client: Client, query: str = "") -> pa.Table:
    """Return the file of a request as a table."""
    response: Any = client.get(f"{PATH}?{query}")
    assert response.status_code == 200, response.content
    assert response["Content-Type"] == "application/vnd.apache.parquet"
    return pq.read_table(io.BytesIO(async_to_sync(_content)(response)))


async def _content(response: Any) -> bytes:
    return b"".join([chunk async for chunk in response.streaming_content])


def some(first: int, count: int) -> list[Event]:
    return [histories.failed(number) for number in range(first, first + count)]


def append_days(*counts: int, application: str = APPLICATION) -> None:
    """Append failures, those of each number a day after the others, at noon."""
    first = 0
    for day, count in enumerate(counts):
        at = NOON + timedelta(days=day)
        streams.append(some(first, count), received_at=at, application=application)
        first += count


def test_a_file_has_the_events_of_the_feed(flights: Story, viewer: Client) -> None:
    flights.pauses("JFK", held=12)
    flights.skips("EWR", 3)
    table = exported(viewer)
    rows = table.to_pylist()
    page = viewer.get("/api/v1/feed").json()["results"]
    assert [json.loads(each["data"]) for each in rows] == [each["data"] for each in page]
    for row, event in zip(rows, page, strict=True):
        run = event["run"] or dict.fromkeys(("pipeline", "checkpoint", "epoch"))
        same = ("application", "sequence", "type", "instance", "caused_by")
        assert {name: row[name] for name in (*same, *run)} == {
            name: event[name] for name in same
        } | run
        assert row["received_at"] == datetime.fromisoformat(event["received_at"])
        assert row["occurred_at"] == datetime.fromisoformat(event["occurred_at"])
    failed, *_ = [each for each in rows if each["type"] == "RecordFailed"]
    failure = json.loads(failed["data"])["failure"]
    assert {name: failed[name] for name in failure} == failure
    assert (failed["task"], failed["position"], failed["failed"]) == ("JFK", 151_974, 1)
    counted, *_ = [each for each in rows if each["type"] == "FailuresCounted"]
    assert (counted["failed"], counted["response"]) == (2, "CONTINUE")


def test_a_file_has_the_events_received_in_a_time(db: None, viewer: Client) -> None:
    append_days(2, 3, 4)
    append_days(1, 1, application="other")
    found = exported(viewer, "since=2026-11-20T12:00:00Z&until=2026-11-21T12:00:00Z")
    assert found.select(["application", "sequence"]).to_pylist() == [
        {"application": name, "sequence": number}
        for name, number in ((APPLICATION, 3), (APPLICATION, 4), (APPLICATION, 5), ("other", 2))
    ]
    assert exported(viewer, f"application={APPLICATION}").num_rows == 9
    assert exported(viewer, f"application={APPLICATION}&type=TaskPaused").num_rows == 0
    assert exported(viewer, "since=2026-12-20T12:00:00Z").num_rows == 0
    names = dict(zip(event_table.COLUMNS, found.schema.types, strict=True))
    assert str(names["received_at"]) == "timestamp[us, tz=UTC]"


def test_a_file_is_made_in_groups_of_bounded_size(
    db: None, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_days(10, 10)
    for name, value in (("GROUP_EVENTS", 3), ("GROUP_BYTES", 1)):
        monkeypatch.setattr(event_table, name, value)
        file, parts = event_table.ParquetFile(), []
        while (part := file.next_part()) is not None:
            parts.append(part)
        read = pq.ParquetFile(io.BytesIO(b"".join(parts)))
        assert read.read(["sequence"]).column(0).to_pylist() == list(range(1, 21))
        assert read.metadata.num_row_groups == (7 if name == "GROUP_EVENTS" else 20)
        assert len(parts) == read.metadata.num_row_groups + 1


def test_events_dropped_during_an_export_end_it_without_a_footer(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_table, "GROUP_EVENTS", 2)
    streams.append_late(5)
    file = event_table.ParquetFile(APPLICATION)
    begin = file.next_part()
    assert begin is not None
    with streams.retaining_before("FROM batch"), pytest.raises(BeforeHistory):
        while file.next_part() is not None:
            pass
    with pytest.raises(pa.ArrowInvalid):
        pq.read_table(io.BytesIO(begin))


def test_an_export_that_fails_is_cut_off(
    db: None, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream raises, so that the server closes the connection before the end."""
    monkeypatch.setattr(event_table, "GROUP_EVENTS", 2)
    append_days(5)
    response: Any = viewer.get(PATH)

    def lost(_: object) -> bytes:
        raise OperationalError("PostgreSQL is away")

    monkeypatch.setattr(event_table.ParquetFile, "next_part", lost)
    with pytest.raises(OperationalError):
        async_to_sync(_content)(response)


def test_what_cannot_be_exported_is_refused_with_a_status(
    db: None, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_days(5)
    assert Client().get(PATH).status_code == 401
    assert viewer.get(f"{PATH}?application=unknown").status_code == 404
    assert viewer.get(f"{PATH}?type=Nothing").status_code == 400
    store.save_base(APPLICATION, 3, [], received_at=NOON, now=NOON)
    gone = viewer.get(f"{PATH}?since=2026-11-19T12:00:00Z")
    assert (gone.status_code, gone.json()["code"]) == (410, "before_history")
    assert exported(viewer).column("sequence").to_pylist() == [4, 5]
    assert queries.feed().events[0].sequence == 4
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    missing = viewer.get(PATH)
    assert (missing.status_code, missing.json()["code"]) == (501, "not_installed")
    assert "arrester[files]" in missing.json()["detail"]

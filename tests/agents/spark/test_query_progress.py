"""Progress reports of Spark: commits, durations and the backlog."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from arrester.agents.spark.query_progress import Backlog, backlog_of, progress_of


def report(**more: Any) -> str:
    data: dict[str, Any] = {
        "id": "c1",
        "name": None,
        "timestamp": "2026-03-04T05:06:07.250Z",
        "batchId": 7,
        "numInputRows": 4,
        "durationMs": {"triggerExecution": 500, "addBatch": 300},
        "sources": [],
    }
    return json.dumps(data | more)


def kafka(latest: object, end: object) -> dict[str, Any]:
    return {"description": "KafkaV2[Subscribe[t]]", "latestOffset": latest, "endOffset": end}


def test_a_micro_batch_is_committed_when_it_is_reported() -> None:
    progress = progress_of(report())
    assert (progress.committed, progress.is_batch, progress.rows) == (7, True, 4)
    assert (progress.total, progress.source) == (500, 200)
    assert progress.ended_at == datetime(2026, 3, 4, 5, 6, 7, 750_000, tzinfo=UTC)


def test_an_idle_trigger_has_the_number_of_the_next_micro_batch() -> None:
    progress = progress_of(report(durationMs={"triggerExecution": 3, "latestOffset": 3}))
    assert (progress.committed, progress.is_batch) == (6, False)


def test_a_watermark_that_is_not_set_is_none() -> None:
    assert progress_of(report()).watermark is None
    none_yet = {"watermark": "1970-01-01T00:00:00.000Z"}
    assert progress_of(report(eventTime=none_yet)).watermark is None
    found = progress_of(report(eventTime={"watermark": "2026-03-04T05:00:00.000Z"}))
    assert found.watermark == datetime(2026, 3, 4, 5, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([], Backlog()),
        ([{"description": "FileStreamSource[file:/in]"}], Backlog()),
        ([kafka({"t": {"0": 9, "1": 5}}, {"t": {"0": 7, "1": 5}})], Backlog(2, "records")),
        ([kafka({"t": {"0": 0}}, {"t": {"0": 7}})], Backlog(0, "records")),
        ([kafka({"t": {"0": 9, "1": 5}}, {"t": {"0": 7}})], Backlog()),
        ([kafka(None, {"t": {"0": 7}})], Backlog()),
        ([{"description": "Delta", "metrics": {"numFilesOutstanding": "3"}}], Backlog(3, "files")),
        ([{"metrics": {"numBytesOutstanding": "70"}}], Backlog(70, "bytes")),
        (
            [kafka({"t": {"0": 9}}, {"t": {"0": 7}}), kafka({"u": {"0": 1}}, {"u": {"0": 0}})],
            Backlog(3, "records"),
        ),
        (
            [kafka({"t": {"0": 9}}, {"t": {"0": 7}}), {"metrics": {"numFilesOutstanding": "1"}}],
            Backlog(),
        ),
        ([kafka({"t": {"0": 9}}, {"t": {"0": 7}}), {"description": "Rate"}], Backlog()),
    ],
)
def test_the_backlog_is_what_all_sources_report(sources: Any, expected: Backlog) -> None:
    assert backlog_of(sources) == expected

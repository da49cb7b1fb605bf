"""What Spark reports about a trigger of a streaming query: its duration, backlog and watermark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from arrester.domain.events import BacklogUnit
from arrester.domain.python_versions import UTC

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: What the metrics of a source may have.
_METRICS: Mapping[str, BacklogUnit] = {
    "numFilesOutstanding": "files",
    "numBytesOutstanding": "bytes",
}


class Backlog(NamedTuple):
    """What a source has that was not read yet; None: it does not report it."""

    size: int | None = None
    unit: BacklogUnit | None = None


class Progress(NamedTuple):
    """One progress report of a query."""

    #: The name of the query; None: it has none.
    name: str | None
    #: The start of the trigger as Spark writes it: a progress that was read is recognised by it.
    timestamp: str
    #: When the trigger ended.
    ended_at: datetime
    #: The last micro-batch that is known to be committed.
    committed: int
    #: Whether the trigger ran a micro-batch.
    is_batch: bool
    rows: int
    #: The durations of the trigger and of its source, in milliseconds.
    total: float
    source: float
    backlog: Backlog
    watermark: datetime | None


def progress_of(report: str) -> Progress:
    """Return a report that Spark gave as JSON."""
    data = json.loads(report)
    durations = data.get("durationMs") or {}
    total, in_batch = durations.get("triggerExecution", 0), durations.get("addBatch")
    is_batch = in_batch is not None
    return Progress(
        name=data.get("name"),
        timestamp=data["timestamp"],
        ended_at=_time(data["timestamp"]) + timedelta(milliseconds=total),
        # A trigger without a micro-batch has the number of the next one.
        committed=data["batchId"] if is_batch else data["batchId"] - 1,
        is_batch=is_batch,
        rows=max(0, int(data.get("numInputRows") or 0)),
        total=total,
        source=max(0, total - (in_batch or 0)),
        backlog=backlog_of(data.get("sources") or []),
        watermark=_watermark(data.get("eventTime") or {}),
    )


def backlog_of(sources: Sequence[Mapping[str, Any]]) -> Backlog:
    """Return the backlog of all sources together, if each reports it in the same unit."""
    found = [_backlog_of(source) for source in sources]
    sizes = [each.size for each in found if each.size is not None]
    if not found or len(sizes) < len(found) or len({each.unit for each in found}) > 1:
        return Backlog()
    return Backlog(sum(sizes), found[0].unit)


def _backlog_of(source: Mapping[str, Any]) -> Backlog:
    latest, end = source.get("latestOffset"), source.get("endOffset")
    if str(source.get("description")).startswith("Kafka"):
        return Backlog() if (size := _behind(latest, end)) is None else Backlog(size, "records")
    metrics = source.get("metrics") or {}
    for name, unit in _METRICS.items():
        if str(metrics.get(name, "")).isdigit():
            return Backlog(int(metrics[name]), unit)
    return Backlog()


def _behind(latest: object, end: object) -> int | None:
    """Return the records of Kafka's partitions from `end` to `latest`; None: unknown."""
    if not isinstance(latest, Mapping) or not isinstance(end, Mapping):
        return None
    behind = 0
    for topic, partitions in latest.items():
        for partition, offset in partitions.items():
            read = end.get(topic, {}).get(partition)
            if read is None:
                return None
            # A topic that was created again has lower offsets.
            behind += max(0, offset - read)
    return behind


def _watermark(event_time: Mapping[str, str]) -> datetime | None:
    found = _time(event_time["watermark"]) if "watermark" in event_time else _EPOCH
    return found if found > _EPOCH else None


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)

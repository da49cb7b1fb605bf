"""The counters of all tasks of each pipeline, so that metrics read one row for each pipeline.

As the flow of pipelines, they are no view of the log: a rebuild leaves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from arrester.controlplane import models
from arrester.controlplane.store.column_values import MAX_BIGINT, saturated
from arrester.controlplane.views.bulk_upsert import Row, Upsert, Value
from arrester.domain.state.states import Counters, TaskState
from arrester.domain.state.stream_state import StreamState

LAST: Final = "last_failure_timestamp"
#: The names of the counters of a task that are added.
COUNTS: Final = (
    *("record_failures", "records_skipped", "total_retries", "failures_logged"),
    *("dlq_records_produced", "dlq_produce_failures"),
)
_NONE: Final = Counters()
# An event that claims no attempt subtracts a retry.
_CHANGES: Final = {
    name: f"greatest(least(failure_total.{name}::numeric + excluded.{name}, {MAX_BIGINT}),"
    f" -{MAX_BIGINT})::bigint"
    for name in ("failed", *COUNTS)
} | {LAST: f"greatest(failure_total.{LAST}, excluded.{LAST})"}


def additions(state: StreamState, before: Mapping[str, TaskState]) -> Upsert:
    """Return the statement that adds what a fold has counted; `before` has the tasks before it."""
    sums: dict[str, _Sums] = {}
    for digest in state.changed_keys.tasks:
        task, former = state.tasks[digest], before.get(digest)
        if former is None or task.counters is not former.counters or task.failed != former.failed:
            pipeline = task.id.pipeline
            found = sums.get(pipeline)
            if found is None:
                found = sums[pipeline] = _Sums()
            found.add(task, former)
    rows: list[Row] = [
        {"application": state.application.name, "pipeline": pipeline, **found.columns()}
        for pipeline, found in sums.items()
    ]
    return Upsert(models.FailureTotal, rows, _CHANGES)


class _Sums:
    """What a fold has counted of one pipeline. A fold may change thousands of tasks."""

    __slots__ = ("_counts", "_last")

    def __init__(self) -> None:
        self._counts = [0] * (1 + len(COUNTS))
        self._last: datetime | None = None

    def add(self, task: TaskState, former: TaskState | None) -> None:
        """Add the difference of a task's counters before and after the fold."""
        counts, new = self._counts, task.counters
        old = _NONE if former is None else former.counters
        counts[0] += task.failed - (0 if former is None else former.failed)
        counts[1] += new.record_failures - old.record_failures
        counts[2] += new.records_skipped - old.records_skipped
        counts[3] += new.total_retries - old.total_retries
        counts[4] += new.failures_logged - old.failures_logged
        counts[5] += new.dlq_records_produced - old.dlq_records_produced
        counts[6] += new.dlq_produce_failures - old.dlq_produce_failures
        last = new.last_failure_timestamp
        if last is not None and (self._last is None or last > self._last):
            self._last = last

    def columns(self) -> dict[str, Value]:
        """Return the values of the columns."""
        numbers = (max(-MAX_BIGINT, saturated(each)) for each in self._counts)
        return dict(zip(("failed", *COUNTS), numbers, strict=True)) | {LAST: self._last}

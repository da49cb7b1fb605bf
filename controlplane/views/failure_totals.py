"""The counters of all tasks of each pipeline, so that metrics read one row for each pipeline.

As the flow of pipelines, they are no view of the log: a rebuild leaves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from arrester.controlplane import models
from arrester.controlplane.store.column_values import MAX_BIGINT, saturated
from arrester.controlplane.views.bulk_upsert import Upsert
from arrester.domain.state.states import TaskState
from arrester.domain.state.stream_state import StreamState

LAST: Final = "last_failure_timestamp"
#: The names of the counters of a task that are added.
COUNTS: Final = (
    *("record_failures", "records_skipped", "total_retries", "failures_logged"),
    *("dlq_records_produced", "dlq_produce_failures"),
)
# An event that claims no attempt subtracts a retry.
_CHANGES: Final = {
    name: f"greatest(least(failure_total.{name}::numeric + excluded.{name}, {MAX_BIGINT}),"
    f" -{MAX_BIGINT})::bigint"
    for name in ("failed", *COUNTS)
} | {LAST: f"greatest(failure_total.{LAST}, excluded.{LAST})"}


def additions(state: StreamState, before: Mapping[str, TaskState]) -> Upsert:
    """Return the statement that adds what a fold has counted; `before` has the tasks before it."""
    rows: dict[str, dict[str, Any]] = {}
    for digest in state.changed_keys.tasks:
        task, former = state.tasks[digest], before.get(digest)
        if former is not None and task.counters == former.counters and task.failed == former.failed:
            continue
        row = rows.setdefault(
            task.id.pipeline,
            {"application": task.id.application, "pipeline": task.id.pipeline, "failed": 0}
            | dict.fromkeys(COUNTS, 0)
            | {LAST: None},
        )
        row["failed"] += task.failed - (former.failed if former else 0)
        for name in COUNTS:
            number = getattr(former.counters, name) if former else 0
            row[name] += getattr(task.counters, name) - number
        last = task.counters.last_failure_timestamp
        if last is not None and (row[LAST] is None or last > row[LAST]):
            row[LAST] = last
    for row in rows.values():
        row.update({name: max(-MAX_BIGINT, saturated(row[name])) for name in ("failed", *COUNTS)})
    return Upsert(models.FailureTotal, [*rows.values()], _CHANGES)

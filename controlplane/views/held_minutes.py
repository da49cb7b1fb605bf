"""Changes of held records per minute, which divide those per hour.

As the flow of pipelines, they are no view of the log: a rebuild leaves them, and they are dropped
by their own age. Where they are missing, charts have the changes per hour.
"""

from __future__ import annotations

from datetime import datetime

from arrester.controlplane import models
from arrester.controlplane.store.column_values import MAX_BIGINT, saturated
from arrester.controlplane.views.bulk_upsert import Row, Upsert
from arrester.domain.state.stream_state import StreamState

_SUM = f"least(held_minute.change::numeric + excluded.change, {MAX_BIGINT})::bigint"


def additions(state: StreamState) -> Upsert:
    """Return the statement that adds the changes of a fold."""
    rows: list[Row] = [
        {
            "application": state.application.name,
            "minute": minute,
            "pipeline": pipeline,
            "checkpoint": checkpoint,
            "change": saturated(change),
        }
        for (minute, pipeline, checkpoint), (change, _) in state.held_changes.items()
    ]
    return Upsert(models.HeldMinute, rows, {"change": _SUM})


def forget(*, before: datetime) -> None:
    """Delete the minutes before a time, of all applications."""
    models.HeldMinute.objects.filter(minute__lt=before).delete()

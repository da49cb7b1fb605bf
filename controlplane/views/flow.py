"""The flow of pipelines, per minute, per hour and in total: sums of what agents measured.

The rows are written with the events, in one transaction, and each batch of events is appended once,
so nothing is counted twice. They are no view of the log: a rebuild leaves them, and they are
dropped by their own age.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from django.db import models as fields

from arrester.controlplane import models
from arrester.controlplane.store.column_values import MAX_BIGINT, saturated
from arrester.controlplane.views.bulk_upsert import Row, Upsert
from arrester.domain import durations
from arrester.domain.durations import KEYS, MOST
from arrester.domain.events import FLOW_COUNTS, FlowMeasured, StoredEvent
from arrester.domain.wire.failure_columns import Stored

#: The newest value that is known.
GAUGES: Final = ("last_batch_at", "backlog", "backlog_unit", "watermark")
#: The column of the time, by table, and the parts of a time that it leaves out.
_TIMES: Final[dict[type[fields.Model], tuple[str | None, Mapping[str, Any]]]] = {
    models.FlowMinute: ("minute", {"second": 0, "microsecond": 0}),
    models.FlowHour: ("hour", {"minute": 0, "second": 0, "microsecond": 0}),
    models.FlowTotal: (None, {}),
}
_SUMMED_DURATIONS = (
    f"ARRAY(SELECT least(sum(each / {KEYS}), {MOST})::bigint * {KEYS} + mod(each, {KEYS})"
    " FROM unnest({table}.durations || excluded.durations) AS each"
    f" GROUP BY mod(each, {KEYS}) ORDER BY mod(each, {KEYS}))"
)


def additions(stored: Iterable[Stored]) -> list[Upsert]:
    """Return the statements that add what events measured."""
    measured = [
        each
        for each in stored
        if isinstance(each, StoredEvent) and isinstance(each.event.data, FlowMeasured)
    ]
    if not measured:
        return []
    return [Upsert(model, _rows(measured, model), _changes(model)) for model in _TIMES]


def forget(*, minutes_before: datetime, hours_before: datetime) -> None:
    """Delete minutes and hours that are older than these times, of all applications, and the totals
    of checkpoints that nothing has flowed through since."""
    models.FlowMinute.objects.filter(minute__lt=minutes_before).delete()
    models.FlowHour.objects.filter(hour__lt=hours_before).delete()
    models.FlowTotal.objects.filter(last_batch_at__lt=hours_before).delete()


def _rows(measured: Iterable[StoredEvent], model: type[fields.Model]) -> list[Row]:
    """Return one row for each run and time, or for each checkpoint."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    column, left_out = _TIMES[model]
    for each in measured:
        data, run = each.event.data, each.event.run
        assert isinstance(data, FlowMeasured)
        if run is None:
            continue
        key: dict[str, Any] = {
            "application": each.application,
            "pipeline": run.pipeline,
            "checkpoint": run.checkpoint,
        }
        if column is not None:
            key |= {"epoch": run.epoch, column: data.minute.replace(**left_out)}
        row = rows.setdefault(
            tuple(key.values()),
            key | dict.fromkeys(FLOW_COUNTS, 0) | dict.fromkeys(GAUGES) | {"durations": {}},
        )
        for name in FLOW_COUNTS:
            row[name] = saturated(row[name] + getattr(data, name))
        for name in GAUGES:
            value = getattr(data, name)
            row[name] = row[name] if value is None else value
        row["durations"] = durations.added([row["durations"], data.durations])
        row["sequence"] = each.sequence
    return [row | {"durations": durations.packed(row["durations"])} for row in rows.values()]


def _changes(model: type[fields.Model]) -> dict[str, str]:
    """Return how an existing row changes."""
    table = model._meta.db_table
    sums = {
        name: f"least({table}.{name}::numeric + excluded.{name}, {MAX_BIGINT})::bigint"
        for name in FLOW_COUNTS
    }
    newest = {name: f"coalesce(excluded.{name}, {table}.{name})" for name in GAUGES}
    rest = {"sequence": "excluded.sequence", "durations": _SUMMED_DURATIONS.format(table=table)}
    return sums | newest | rest

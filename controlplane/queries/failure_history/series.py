"""Failed records over time in equal steps: by application, pipeline, stage or error group, or of a
task.

Each is one statement. Steps of whole hours are read from the counts per hour, where these have the
requested names.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from arrester.controlplane.queries import paging, sql
from arrester.controlplane.store.column_values import MAX_BIGINT
from arrester.domain.identity.names import TaskDigest

HOUR = timedelta(hours=1)
#: What the steps of a series are counted by.
By = Literal["application", "pipeline", "stage", "fingerprint"]
#: An error group has one stage.
_STAGES_OF_HOURS = """hour_count JOIN (
    SELECT application, fingerprint, stage FROM error_group
) AS of_stage USING (application, fingerprint)"""
_OF_TASK = """(SELECT occurred_at AS minute, count, application, '' AS name
    FROM event JOIN stream ON stream.id = event.stream WHERE task = %s AND count IS NOT NULL
) AS of_task"""


class SeriesFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which failed records are counted; None means any."""

    application: str | None = None
    pipeline: str | None = None
    task: Annotated[
        TaskDigest | None, Meta(description="Only with by=application, and no other filter.")
    ] = None
    stage: str | None = None
    fingerprint: str | None = None


class StepCount(msgspec.Struct, frozen=True, kw_only=True):
    """The failed records of a step that have one name; steps without any are left out."""

    began_at: Annotated[datetime, Meta(description="The beginning of the step.")]
    application: Annotated[
        str | None, Meta(description="Null: of all applications whose names are not listed.")
    ]
    name: Annotated[
        str | None,
        Meta(description="The pipeline, stage or error group; null: by application, or the rest."),
    ]
    count: Annotated[int, Meta(description="Failed records.")]


def failure_series(
    wanted: SeriesFilter,
    *,
    by: By,
    since: datetime,
    until: datetime,
    step: timedelta,
    names: int | None = None,
) -> tuple[StepCount, ...]:
    """Return the failed records of each step of [since, until) by name, in order of time.

    Args:
        names: if there are more names, all but the largest `names` - 1 are combined without one.
    """
    source = _source(wanted, by, step=step, since=since)
    where, parameters = sql.where(_conditions(wanted))
    time, name = source.time, source.name
    counted = f"{source.table} WHERE {time} >= %s AND {time} < %s AND {where}"
    values = [*source.parameters, since, until, *parameters]
    most = MAX_BIGINT if names is None else names
    rows = sql.rows(
        f"WITH ranked AS (SELECT application, {name} AS name, count(*) OVER () AS many,"
        f" row_number() OVER (ORDER BY sum(count) DESC, application, {name}) AS place"
        f" FROM {counted} GROUP BY 1, 2"
        "), shown AS (SELECT application, name FROM ranked WHERE many <= %s OR place < %s)"
        f" SELECT date_bin(%s, {time}, %s), shown.application, shown.name, sum(count)"
        f" FROM (SELECT {time}, application, {name} AS name, count FROM {counted}) AS counted"
        " LEFT JOIN shown USING (application, name) GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
        [*values, most, most, step, since, *values],
    )
    return tuple(
        StepCount(began_at=moment, application=of, name=called or None, count=int(count))
        for moment, of, called, count in rows
    )


class _Source(NamedTuple):
    """A table of counts, its parameters, and its columns of the time and of the name."""

    table: str
    name: str
    time: str = "minute"
    parameters: Sequence[object] = ()


def _source(wanted: SeriesFilter, by: By, *, step: timedelta, since: datetime) -> _Source:
    """Return the smallest table that has the names and the filters."""
    if wanted.task is not None:
        return _Source(_OF_TASK, "''", parameters=[paging.task_id(wanted.task)])
    name = "''" if by == "application" else by
    of_pipeline = by == "pipeline" or wanted.pipeline is not None
    of_stage = by == "stage" or wanted.stage is not None
    of_group = by == "fingerprint" or wanted.fingerprint is not None
    if step % HOUR or since.minute or since.second:
        detailed = of_pipeline or of_stage or of_group
        return _Source("minute_count" if detailed else "minute_total", name)
    if not of_group:
        return _Source("hour_stage" if of_pipeline or of_stage else "hour_total", name, "hour")
    if of_pipeline:
        return _Source("minute_count", name)
    return _Source(_STAGES_OF_HOURS if of_stage else "hour_count", name, "hour")


def _conditions(wanted: SeriesFilter) -> dict[str, Any]:
    fields = ("application", "pipeline", "stage", "fingerprint")
    return {name: getattr(wanted, name) for name in fields if wanted.task is None}

"""Failed records over time in equal steps: by application, pipeline, stage or error group, or of a
task.

Each is one statement. Steps of whole hours are read from the counts per hour, where these have the
requested names.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

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
    source, name, values = _source(wanted, by, step=step, since=since)
    time = "hour" if source.startswith("hour") else "minute"
    where, parameters = sql.where(_conditions(wanted))
    most = names or MAX_BIGINT
    rows = sql.rows(
        "WITH counted AS MATERIALIZED ("
        f"SELECT date_bin(%s, {time}, %s) AS moment, application, {name} AS name,"
        f" sum(count) AS number FROM {source}"
        f" WHERE {time} >= %s AND {time} < %s AND {where} GROUP BY 1, 2, 3"
        "), ranked AS (SELECT application, name, count(*) OVER () AS many,"
        " row_number() OVER (ORDER BY sum(number) DESC, application, name) AS place"
        " FROM counted GROUP BY 1, 2)"
        " SELECT moment, CASE WHEN many <= %s OR place < %s THEN application END,"
        " CASE WHEN many <= %s OR place < %s THEN name END, sum(number)"
        " FROM counted JOIN ranked USING (application, name) GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
        [step, since, *values, since, until, *parameters, most, most, most, most],
    )
    return tuple(
        StepCount(began_at=moment, application=of, name=called or None, count=int(count))
        for moment, of, called, count in rows
    )


def _source(
    wanted: SeriesFilter, by: By, *, step: timedelta, since: datetime
) -> tuple[str, str, list[Any]]:
    """Return the table of the counts, the column of the name, and the table's parameters."""
    if wanted.task is not None:
        return _OF_TASK, "''", [paging.task_id(wanted.task)]
    by_hours = step % HOUR == timedelta(0) and since.minute == since.second == 0
    of_pipeline = by == "pipeline" or wanted.pipeline is not None
    of_stage = by == "stage" or wanted.stage is not None
    name = "''" if by == "application" else by
    if of_pipeline or (of_stage and not by_hours):
        return "minute_count", name, []
    if of_stage:
        return _STAGES_OF_HOURS, name, []
    table = "count" if by == "fingerprint" or wanted.fingerprint is not None else "total"
    return f"{'hour' if by_hours else 'minute'}_{table}", name, []


def _conditions(wanted: SeriesFilter) -> dict[str, Any]:
    fields = ("application", "pipeline", "stage", "fingerprint")
    return {name: getattr(wanted, name) for name in fields if wanted.task is None}

"""Failed records over time in equal steps: by application, pipeline, stage or error group, or of a
task.

Each is one statement. Steps of whole hours are read from the counts per hour, where these have the
requested names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
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

_IN_TIME = "application = %s AND hour >= %s AND hour < %s"
#: How many groups are candidates for each of the largest, one after the other.
_CANDIDATES = (2, 8)

_EPOCH = "extract(epoch FROM moment)::bigint"
_NUMBER = f"least(sum, {MAX_BIGINT})::bigint"


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
    of_groups = by == "fingerprint" and wanted == SeriesFilter(application=wanted.application)
    if names and wanted.application and of_groups and source.table == "hour_count":
        return _of_groups(wanted.application, since=since, until=until, step=step, names=names)
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
        f" SELECT {_EPOCH}, application, name, {_NUMBER} FROM ("
        f"SELECT date_bin(%s, {time}, %s) AS moment, shown.application, shown.name, sum(count)"
        f" FROM (SELECT {time}, application, {name} AS name, count FROM {counted}) AS counted"
        " LEFT JOIN shown USING (application, name) GROUP BY 1, 2, 3) AS step ORDER BY 1, 2, 3",
        [*values, most, most, step, since, *values],
    )
    moments = _moments(rows)
    return tuple(
        StepCount(began_at=moments[epoch], application=of, name=called or None, count=count)
        for epoch, of, called, count in rows
    )


def _of_groups(
    application: str, *, since: datetime, until: datetime, step: timedelta, names: int
) -> tuple[StepCount, ...]:
    """Return the counts of the largest error groups of an application, and of the rest together."""
    time = [application, since, until]
    largest = _largest_groups(time, names + 1)
    if len(largest) > names:
        largest = largest[: names - 1]
    counted = _of_some(largest, time, step)
    for (moment, name), count in counted.items():
        if name is not None:
            counted[moment, None] -= count
    return tuple(
        StepCount(began_at=moment, application=name and application, name=name, count=count)
        for (moment, name), count in counted.items()
        if count > 0
    )


def _largest_groups(time: Sequence[object], number: int) -> list[str]:
    """Return the error groups with the most failed records of a time, the largest first.

    A group has at most as many as since its creation. Unless that excludes all but some groups, the
    counts of all of them are read.
    """
    candidates = sql.rows(
        "SELECT fingerprint, count FROM error_group WHERE application = %s AND last_seen >= %s"
        " ORDER BY count DESC LIMIT %s",
        [*time[:2], _CANDIDATES[-1] * number + 1],
    )
    for many in _CANDIDATES:
        tried, others = candidates[: many * number], candidates[many * number :]
        names = [fingerprint for fingerprint, _ in tried]
        ranked = _ranked(time, number, " AND fingerprint = ANY(%s::text[])", names)
        if not others or (len(ranked) == number and ranked[-1][1] > others[0][1]):
            break
    else:
        ranked = _ranked(time, number)
    return [fingerprint for fingerprint, _ in ranked]


def _ranked(
    time: Sequence[object], number: int, condition: str = "", *values: object
) -> list[tuple[Any, ...]]:
    """Return the largest error groups of a time with their counts, the largest first."""
    return sql.rows(
        f"SELECT fingerprint, sum(count) FROM hour_count WHERE {_IN_TIME}{condition}"
        " GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT %s",
        [*time, *values, number],
    )


def _of_some(
    fingerprints: Sequence[str], time: Sequence[object], step: timedelta
) -> dict[tuple[datetime, str | None], int]:
    """Return the counts of error groups by step in order, and of all together without a name.

    `time` has the application, the beginning and the end.
    """
    moment = "date_bin(%s, hour, %s) AS moment"
    values = [step, time[1], *time]
    rows = sql.rows(
        f"SELECT {_EPOCH}, fingerprint, {_NUMBER} FROM ("
        f"SELECT {moment}, fingerprint, sum(count) FROM hour_count"
        f" WHERE {_IN_TIME} AND fingerprint = ANY(%s::text[]) GROUP BY 1, 2"
        f" UNION ALL SELECT {moment}, NULL, sum(count) FROM hour_total WHERE {_IN_TIME} GROUP BY 1"
        ") AS step ORDER BY 1, 2",
        [*values, list(fingerprints), *values],
    )
    moments = _moments(rows)
    return {(moments[epoch], fingerprint): count for epoch, fingerprint, count in rows}


def _moments(rows: Iterable[tuple[Any, ...]]) -> dict[int, datetime]:
    """Return the times of steps, which rows have as seconds since 1970: each is made once."""
    return {epoch: datetime.fromtimestamp(epoch, UTC) for epoch in {row[0] for row in rows}}


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

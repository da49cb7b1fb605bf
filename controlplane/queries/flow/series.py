"""The flow of pipelines over time, in equal steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from arrester.controlplane.queries import sql
from arrester.controlplane.queries.flow.sums import FlowSums, of_counts
from arrester.domain import durations
from arrester.domain.durations import KEYS, Phase, key_of_packed
from arrester.domain.events import FLOW_COUNTS

_HOUR = timedelta(hours=1)
_SUMS = ", ".join(f"sum({name})" for name in FLOW_COUNTS)
_STEPS = f"""
SELECT date_bin(%s, {{time}}, %s) AS moment, {_SUMS},
    (array_agg(backlog ORDER BY {{time}} DESC, epoch DESC) FILTER (WHERE backlog IS NOT NULL))[1],
    (array_agg(backlog_unit ORDER BY {{time}} DESC, epoch DESC)
        FILTER (WHERE backlog_unit IS NOT NULL))[1]
FROM flow_{{time}} WHERE {{time}} >= %s AND {{time}} < %s AND {{where}} GROUP BY 1 ORDER BY 1
"""
_DURATIONS = f"""
SELECT date_bin(%s, {{time}}, %s), mod(each, {KEYS}), sum(each / {KEYS})
FROM flow_{{time}} CROSS JOIN LATERAL unnest(durations) AS each
WHERE {{time}} >= %s AND {{time}} < %s AND {{where}} GROUP BY 1, 2
"""


class Duration(msgspec.Struct, frozen=True, kw_only=True):
    """How long micro-batches took, or one phase of them; a tenth more at most."""

    p50_ms: float
    p95_ms: float
    longest_ms: float


class FlowInterval(msgspec.Struct, frozen=True, kw_only=True):
    """The flow of one step of time; a step in which nothing was measured is left out."""

    moment: Annotated[datetime, Meta(description="The beginning of the step.")]
    sums: FlowSums
    durations: Annotated[
        dict[str, Duration],
        Meta(description="By phase: total, source, evaluate, decide, store, write."),
    ] = {}
    backlog: Annotated[int | None, Meta(description="At the end; null: not known.")] = None
    backlog_unit: str | None = None


def flow_series(
    *,
    since: datetime,
    until: datetime,
    step: timedelta,
    application: str | None = None,
    pipeline: str | None = None,
) -> tuple[FlowInterval, ...]:
    """Return the flow of [since, until) of all pipelines, of an application, or of a pipeline.

    Steps begin at `since`; steps of whole hours are read from the sums of hours. Backlogs and
    durations only of one pipeline.
    """
    time = _table(since, step)
    where, parameters = sql.where({"application": application, "pipeline": pipeline})
    values = [step, since, since, until, *parameters]
    rows = sql.rows(_STEPS.format(time=time, where=where), values)
    if pipeline is None:
        return tuple(FlowInterval(moment=row[0], sums=of_counts(row[1:-2])) for row in rows)
    phases = _durations(sql.rows(_DURATIONS.format(time=time, where=where), values))
    return tuple(
        FlowInterval(
            moment=moment,
            sums=of_counts(counts),
            durations=phases.get(moment, {}),
            backlog=None if backlog is None else int(backlog),
            backlog_unit=unit,
        )
        for moment, *counts, backlog, unit in rows
    )


def _table(since: datetime, step: timedelta) -> str:
    """Return what the steps are read from: minutes or hours."""
    is_hours = step % _HOUR == timedelta(0) and since.minute == since.second == 0
    return "hour" if is_hours else "minute"


def _durations(rows: list[tuple[Any, ...]]) -> dict[datetime, dict[str, Duration]]:
    """Return the durations of each step by phase."""
    histograms: dict[datetime, dict[str, int]] = defaultdict(dict)
    for moment, key, count in rows:
        histograms[moment][key_of_packed(key)] = int(count)
    return {moment: _of_phases(each) for moment, each in histograms.items()}


def _of_phases(counted: Mapping[str, int]) -> dict[str, Duration]:
    found = {}
    for phase in Phase:
        p50, p95, longest = (durations.percentile(counted, phase, s) for s in (0.5, 0.95, 1))
        if p50 is not None and p95 is not None and longest is not None:
            found[phase.value] = Duration(p50_ms=p50, p95_ms=p95, longest_ms=longest)
    return found

"""What agents measured lately of all pipelines, read in a fixed number of statements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from arrester.controlplane.queries.current_state.instances import flow_now
from arrester.controlplane.queries.flow import sums
from arrester.controlplane.queries.flow.sums import NewestFlow, RecentSums
from arrester.controlplane.views import live_checkpoints
from arrester.controlplane.views.live_checkpoints import PipelineKey
from arrester.domain.commands import agent_versions
from arrester.domain.python_versions import StrEnum
from arrester.domain.state.states import InstanceState, ThreadState

#: The time of rates: long enough for a micro-batch a minute, short enough for "now".
RATE: Final = timedelta(minutes=5)
#: The time of shares; durations are those of this hour and of the one before.
RECENT: Final = timedelta(hours=1)
#: An agent has sent the flow of a minute this long after its end.
ARRIVAL: Final = timedelta(seconds=20)
#: The time over which a backlog grows or shrinks, and the change that counts as one.
TREND: Final = timedelta(minutes=10)
_CHANGE: Final = 0.1
#: A change of fewer records than are read in this time counts as none.
_LITTLE: Final = timedelta(minutes=1)
_MINUTE: Final = timedelta(minutes=1)
#: A rate of less time would be that of one micro-batch.
_LEAST_SECONDS: Final = 40
#: The share of micro-batches that a long duration is not exceeded by.
LONG: Final = 0.95


class Trend(StrEnum):
    """How the backlog of a source has changed."""

    GROWS = "GROWS"
    STEADY = "STEADY"
    SHRINKS = "SHRINKS"


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What flowed through all pipelines in the last minutes and in the last hour."""

    #: The end of the last whole minute.
    until: datetime
    #: The sums of the last hour, and of the minutes of the rate.
    recent: dict[PipelineKey, RecentSums]
    p95: dict[PipelineKey, float]
    newest: dict[PipelineKey, NewestFlow]
    #: The first and the last one of the time of a trend.
    backlogs: dict[PipelineKey, tuple[int, int]]

    @classmethod
    def of(
        cls,
        runs: Sequence[ThreadState],
        instances: Mapping[UUID, InstanceState],
        *,
        now: datetime,
    ) -> Measured:
        """Return what was measured until now; `runs` are those whose newest values are needed,
        and `instances` run them."""
        until = (now - ARRIVAL).replace(second=0, microsecond=0)
        recent = sums.sums(until - RECENT, now, last=(until - RATE, until))
        lines = {live_checkpoints.pipeline_key(each) for each in runs} | recent.keys()
        return cls(
            until=until,
            recent=recent,
            p95=sums.percentiles(_hour(until) - RECENT, now, LONG),
            newest=newest([*zip(*lines, strict=True)] or [[], [], []], instances.values()),
            backlogs=sums.backlogs(until - TREND, now),
        )

    def values(self, key: PipelineKey, *, since: datetime | None) -> dict[str, Any]:
        """Return the fields of a pipeline's line; `since` its run runs, None: none does."""
        is_known = key in self.newest
        recent = self.recent.get(key, RecentSums())
        seconds = self._seconds(since, recent.first) if is_known else 0
        rates = recent.last
        is_young = since is not None and since > self.until - _MINUTE
        return {
            "recent": recent.sums if key in self.recent or (is_known and not is_young) else None,
            "records_in_per_second": rates.records_in / seconds if seconds else None,
            "records_out_per_second": rates.records_out / seconds if seconds else None,
            "batch_p95_ms": self.p95.get(key),
            "newest": self.newest.get(key, NewestFlow()),
            "backlog_trend": self._trend(key, rates.records_in / RATE.total_seconds()),
        }

    def _seconds(self, since: datetime | None, first: datetime | None) -> float:
        """Return the time of the rate of a run; 0: it does not run, or not for a minute yet.

        What flowed before its start, by an earlier run, is in the minutes from `first` on.
        """
        if since is None:
            return 0
        if first is not None and since - first >= _MINUTE:
            since = first
        seconds = min(RATE, self.until - since).total_seconds()
        return seconds if seconds >= _LEAST_SECONDS else 0

    def _trend(self, key: PipelineKey, rate: float) -> Trend | None:
        if key not in self.backlogs:
            return None
        first, last = self.backlogs[key]
        is_records = self.newest.get(key, NewestFlow()).backlog_unit == "records"
        little = rate * _LITTLE.total_seconds() if is_records else 0
        if abs(last - first) <= max(_CHANGE * max(first, 1), little):
            return Trend.STEADY
        return Trend.GROWS if last > first else Trend.SHRINKS


def measures_flow(run: ThreadState, instances: Mapping[UUID, InstanceState]) -> bool:
    """Whether the agent of a run measures what flows; an older one does not, also where an earlier
    run did."""
    instance = None if run.instance is None else instances.get(run.instance)
    return instance is None or agent_versions.measures_flow(instance)


def newest(
    lines: Sequence[Sequence[str]], instances: Iterable[InstanceState]
) -> dict[PipelineKey, NewestFlow]:
    """Return the newest values of checkpoints: of the last minute, or of a later heartbeat."""
    found = sums.newest(lines)
    for key, now in flow_now(each for each in instances if not each.ended).items():
        known = found.get(key, NewestFlow())
        last = now.last_batch_at
        if last is not None and (known.last_batch_at is None or known.last_batch_at < last):
            found[key] = replace(
                known,
                last_batch_at=last,
                backlog=now.backlog,
                backlog_unit=now.backlog_unit,
            )
    return found


def _hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)

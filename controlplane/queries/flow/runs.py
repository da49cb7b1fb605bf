"""The runs of a pipeline: when each began and ended, why, and what it processed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from arrester.controlplane import store
from arrester.controlplane.queries import paging, sql
from arrester.controlplane.queries.flow.pipelines import RELEASE
from arrester.controlplane.queries.flow.sums import FlowSums, of_counts
from arrester.controlplane.views import row_mapping
from arrester.domain.events import (
    FLOW_COUNTS,
    Failure,
    Run,
    StoredEvent,
    ThreadDied,
    ThreadStarted,
)

#: The ended runs that a list shows as marks.
MARKS = 8
_SUMS = ", ".join(f"sum({name})" for name in FLOW_COUNTS)
_OF_RUNS = f"""
SELECT checkpoint, epoch, {_SUMS} FROM flow_hour
WHERE application = %s AND pipeline = %s
    AND (checkpoint, epoch) IN (SELECT * FROM unnest(%s::text[], %s::bigint[])) GROUP BY 1, 2
"""

RunKey = tuple[str, int]


class PastRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a pipeline, from its start to its end."""

    application: str
    checkpoint: str
    epoch: int
    instance: UUID | None = None
    started_at: Annotated[
        datetime | None, Meta(description="Null: its start is before the first event of the log.")
    ] = None
    ended_at: Annotated[datetime | None, Meta(description="Null: it has not ended.")] = None
    #: The log position of its last event.
    sequence: int
    reason: Annotated[str | None, Meta(description="Why it ended, and by whom.")] = None
    failure: Failure | None = None
    superseded: bool = False
    release: Annotated[str | None, Meta(description="The version of the application.")] = None
    flow: Annotated[FlowSums | None, Meta(description="Null: nothing was measured.")] = None

    @property
    def seconds(self) -> float | None:
        """Its duration; None: it is not known, or the run has not ended."""
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()

    @property
    def milliseconds(self) -> float | None:
        """The same in milliseconds."""
        return None if self.seconds is None else 1000 * self.seconds


def past_runs(application: str, pipeline: str, *, limit: int = 20) -> tuple[PastRun, ...]:
    """Return the newest runs of a pipeline, the newest first."""
    events = store.read_runs(application, pipeline, limit=2 * paging.checked(limit))
    found = _paired(events)[:limit]
    flows, releases = _flows(application, pipeline, found), _releases(found)
    return tuple(
        replace(
            each,
            flow=flows.get((each.checkpoint, each.epoch)),
            release=None if each.instance is None else releases.get(each.instance),
        )
        for each in found
    )


def run_ends(pipelines: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[store.RunEnd]]:
    """Return the last ends of runs of pipelines, by application and name, the newest last."""
    found: dict[tuple[str, str], list[store.RunEnd]] = defaultdict(list)
    for each in store.run_ends(pipelines, each=MARKS):
        found[each.application, each.pipeline].append(each)
    return found


def _paired(events: Sequence[StoredEvent]) -> list[PastRun]:
    """Return the runs of starts and ends, the newest event first.

    All runs of an unguarded query have one number: its start separates a run from the one before.
    """
    found: list[PastRun] = []
    places: dict[RunKey, int] = {}
    for each in events:
        run, data, at = each.event.run, each.event.data, each.event.occurred_at
        assert run is not None
        key = (run.checkpoint, run.epoch)
        if key not in places:
            places[key] = len(found)
            found.append(_unpaired(each, run))
        place = places[key]
        if isinstance(data, ThreadStarted):
            found[place] = replace(found[place], started_at=at)
            del places[key]
        elif isinstance(data, ThreadDied) and found[place].ended_at is None:
            found[place] = replace(
                found[place],
                ended_at=at,
                reason=data.reason,
                failure=data.failure,
                superseded=data.superseded,
            )
    return found


def _unpaired(stored: StoredEvent, run: Run) -> PastRun:
    return PastRun(
        application=stored.application,
        checkpoint=run.checkpoint,
        epoch=run.epoch,
        instance=stored.event.instance,
        sequence=stored.sequence,
    )


def _flows(application: str, pipeline: str, some: Sequence[PastRun]) -> dict[RunKey, FlowSums]:
    keys = [[each.checkpoint for each in some], [each.epoch for each in some]]
    return {
        (checkpoint, int(epoch)): of_counts(counts)
        for checkpoint, epoch, *counts in sql.rows(_OF_RUNS, [application, pipeline, *keys])
    }


def _releases(some: Sequence[PastRun]) -> dict[UUID, str]:
    ids = [each.instance for each in some if each.instance is not None]
    instances = row_mapping.INSTANCES.load_readable("id = ANY(%s::uuid[])", [ids])
    return {each.id: each.versions[RELEASE] for each in instances if RELEASE in each.versions}

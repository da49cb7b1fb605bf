"""Instances: one, those of an application, and those of all applications with their heartbeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from arrester.controlplane.queries import paging, sql
from arrester.controlplane.queries.paging import Page
from arrester.controlplane.redis import heartbeats
from arrester.controlplane.views import row_mapping
from arrester.domain.errors import NotFound
from arrester.domain.state.states import ENDED, InstanceState
from arrester.domain.wire.codec import InProgress, RunFlow

_STARTED = "coalesce(started_at, to_timestamp(0))"
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_ENDED = [status.value for status in ENDED]
#: Whether an instance is live: it has not ended, and is not lost with all its runs taken over.
#: Takes the statuses of `ENDED`.
LIVE = f"(status <> ALL(%s::text[]) AND NOT (lost AND NOT {row_mapping.OWNS_A_RUN}))"


class RunningInstance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance of any application with its heartbeat; None without one."""

    state: InstanceState
    heard_at: Annotated[datetime | None, Meta(description="The last heartbeat.")] = None
    skew_seconds: Annotated[
        float | None, Meta(description="How far its clock is ahead of the server's.")
    ] = None
    #: Its unconfirmed events, their bytes, and the time of the oldest.
    spooled: Annotated[int | None, Meta(description="Unconfirmed events.")] = None
    spool_bytes: int | None = None
    spool_since: datetime | None = None
    counted_only: Annotated[
        int | None, Meta(description="Failed records counted only, without details.")
    ] = None
    #: What its runs process now, with times by the server's clock.
    in_progress: tuple[InProgress, ...] = ()


class LastHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """When the last heartbeat of an instance was received, and what its runs processed then."""

    received_at: datetime
    #: With times by the server's clock.
    in_progress: tuple[InProgress, ...]


def instance(application: str, id: UUID) -> InstanceState:
    """Return an instance; raise NotFound."""
    for state in row_mapping.INSTANCES.load("application = %s AND id = %s", [application, id]):
        return state
    raise NotFound(f"there is no instance {id} of {application!r}")


def instances(application: str, *, ended: bool = False) -> tuple[InstanceState, ...]:
    """Return the live instances, newest first; with `ended` the others.

    A lost instance whose runs were all taken over is among the others.
    """
    which = f"NOT {LIVE}" if ended else LIVE
    where = f"application = %s AND {which} ORDER BY started_at DESC NULLS LAST, id"
    return tuple(
        row_mapping.INSTANCES.load(f"{where} LIMIT %s", [application, _ENDED, paging.MAX_ROWS])
    )


def instance_counts(names: Sequence[str]) -> dict[str, Counter[str]]:
    """Return the number of live instances, and how many of them are LOST, by application."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    rows = sql.rows(
        "SELECT application, count(*), count(*) FILTER (WHERE lost) FROM instance"
        f" WHERE application = ANY(%s) AND {LIVE} GROUP BY 1",
        [list(names), _ENDED],
    )
    for application, alive, lost in rows:
        counts[application].update({"alive": alive, "lost": lost})
    return counts


def last_heartbeats(instances: Sequence[InstanceState]) -> dict[UUID, LastHeartbeat]:
    """Return the last heartbeat of each instance that has one; empty while Redis is unreachable."""
    beats = heartbeats.read([(each.application, each.id) for each in instances])
    return {
        id: LastHeartbeat(received_at=beat.received_at, in_progress=_in_progress(beat))
        for id, beat in beats.items()
    }


class Reports(msgspec.Struct, frozen=True, kw_only=True):
    """What the drivers of an application report: how old their last reports are at most."""

    #: The oldest of the last heartbeats; None: no instance has one, or Redis is unreachable.
    heard_at: datetime | None = None
    #: Events that wait in drivers, and since when.
    waiting: int = 0
    waiting_since: datetime | None = None


def reports(instances: Sequence[InstanceState]) -> Reports:
    """Return what the drivers of live instances report, with times by the server's clock."""
    beats = heartbeats.read([(each.application, each.id) for each in instances]).values()
    known = [beat for beat in beats if beat.heartbeat is not None and beat.skew is not None]
    since = [
        beat.heartbeat.spool_since - beat.skew
        for beat in known
        if beat.heartbeat is not None
        and beat.skew is not None
        and beat.heartbeat.spool_since is not None
    ]
    return Reports(
        heard_at=min((beat.received_at for beat in beats), default=None),
        waiting=sum(beat.heartbeat.spooled for beat in known if beat.heartbeat is not None),
        waiting_since=min(since, default=None),
    )


def flow_now(instances: Iterable[InstanceState]) -> dict[tuple[str, str, str], RunFlow]:
    """Return what flows through the runs of instances now, by application, pipeline and
    checkpoint, with times by the server's clock; empty while Redis is unreachable."""
    owners = {each.id: each.application for each in instances}
    found: dict[tuple[str, str, str], RunFlow] = {}
    for id, beat in heartbeats.read([(name, id) for id, name in owners.items()]).items():
        if beat.heartbeat is None or beat.skew is None:
            continue
        for each in beat.heartbeat.flow:
            last = each.last_batch_at
            by_server = None if last is None else last - beat.skew
            key = (owners[id], each.pipeline, each.checkpoint)
            found[key] = replace(each, last_batch_at=by_server)
    return found


def instance_page(
    application: str | None = None,
    *,
    ended: bool = False,
    lost: bool = False,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[RunningInstance]:
    """Return the live instances, with `ended` the others; the newest first.

    With `lost` only those that are LOST.
    """
    before = paging.unpack(cursor, tuple[datetime, UUID], of="instances")
    where, parameters = sql.where({"application": application}, f"{_STARTED}, id", before)
    which = f"{'NOT ' if ended else ''}{LIVE}{' AND lost' if lost else ''}"
    rows = row_mapping.INSTANCES.load(
        f"{where} AND {which} ORDER BY {_STARTED} DESC, id DESC LIMIT %s",
        [*parameters, _ENDED, paging.checked(limit) + 1],
    )
    page = paging.page(
        rows,
        of="instances",
        limit=limit,
        key=lambda each: (each.started_at or _EARLIEST, each.id),
    )
    beats = heartbeats.read([(each.application, each.id) for each in page.rows])
    return Page(
        rows=tuple(_running(each, beats.get(each.id)) for each in page.rows), next=page.next
    )


def _running(state: InstanceState, beat: heartbeats.ReceivedHeartbeat | None) -> RunningInstance:
    if beat is None or beat.heartbeat is None:
        return RunningInstance(state=state, heard_at=None if beat is None else beat.received_at)
    return RunningInstance(
        state=state,
        heard_at=beat.received_at,
        skew_seconds=None if beat.skew is None else beat.skew.total_seconds(),
        spooled=beat.heartbeat.spooled,
        spool_bytes=beat.heartbeat.spool_bytes,
        spool_since=beat.heartbeat.spool_since,
        counted_only=beat.heartbeat.counted_only,
        in_progress=_in_progress(beat),
    )


class SpoolSums(msgspec.Struct, frozen=True, kw_only=True):
    """What the live instances of an application have not sent, or sent in part only."""

    events: int = 0
    bytes: int = 0
    #: Of the oldest event.
    age_seconds: float = 0.0
    #: Failed records that were only counted, and batches that were dropped.
    counted_only: int = 0
    dropped: int = 0


class LiveReports(msgspec.Struct, frozen=True, kw_only=True):
    """What the heartbeats of all live instances report; empty while Redis is unreachable."""

    #: For how long the oldest input in progress has run, by application and pipeline.
    in_progress_seconds: dict[tuple[str, str], float]
    #: By application.
    spools: dict[str, SpoolSums]


def in_progress_seconds() -> dict[tuple[str, str], float]:
    """Return for how long the oldest input in progress has run, by application and pipeline.

    Empty while Redis is unreachable.
    """
    return live_reports().in_progress_seconds


def live_reports() -> LiveReports:
    """Return what all live instances report."""
    live = sql.rows(f"SELECT application, id FROM instance WHERE {LIVE}", [_ENDED])
    names = {id: application for application, id in live}
    seconds: dict[tuple[str, str], float] = {}
    spools: dict[str, SpoolSums] = {}
    now = datetime.now(UTC)
    for id, beat in heartbeats.read(live).items():
        for each in _in_progress(beat):
            key = names[id], each.pipeline
            seconds[key] = max((now - each.since).total_seconds(), seconds.get(key, 0.0))
        spools[names[id]] = _with_spool(spools.get(names[id], SpoolSums()), beat, now=now)
    return LiveReports(in_progress_seconds=seconds, spools=spools)


def _with_spool(sums: SpoolSums, beat: heartbeats.ReceivedHeartbeat, *, now: datetime) -> SpoolSums:
    heartbeat, skew = beat.heartbeat, beat.skew
    if heartbeat is None or skew is None:
        return sums
    since = now if heartbeat.spool_since is None else heartbeat.spool_since - skew
    return SpoolSums(
        events=sums.events + heartbeat.spooled,
        bytes=sums.bytes + heartbeat.spool_bytes,
        age_seconds=max(sums.age_seconds, (now - since).total_seconds()),
        counted_only=sums.counted_only + heartbeat.counted_only,
        dropped=sums.dropped + heartbeat.batches_dropped,
    )


def _in_progress(beat: heartbeats.ReceivedHeartbeat) -> tuple[InProgress, ...]:
    """Return what a heartbeat reports, with times by the server's clock."""
    if beat.heartbeat is None or beat.skew is None:
        return ()
    return tuple(replace(each, since=each.since - beat.skew) for each in beat.heartbeat.in_progress)

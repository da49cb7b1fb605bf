"""The troubles of the server itself: events that wait, full storage, missing processes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from urllib.parse import quote

from django.conf import settings

from arrester.controlplane import store
from arrester.controlplane.outbound import quota_check
from arrester.controlplane.queries.conditions.causes import AlertCause
from arrester.controlplane.queries.conditions.condition import (
    Condition,
    application_path,
    shortened,
)
from arrester.controlplane.queries.operation import health
from arrester.controlplane.queries.operation.audit import audit_check
from arrester.controlplane.queries.operation.limits import LATELY, limits_reached
from arrester.controlplane.redis import redis_client
from arrester.domain.plural import plural

QUEUES = frozenset({AlertCause.SERVER_BEHIND, AlertCause.QUARANTINE, AlertCause.QUOTA_EXCEEDED})
PROCESSES = frozenset({AlertCause.SERVER_PROCESS})
#: What is unknown while Redis is away, too.
REDIS = frozenset(
    {
        AlertCause.SERVER_STORAGE,
        AlertCause.SERVER_BEHIND,
        AlertCause.QUOTA_EXCEEDED,
        AlertCause.BATCH_LONG,
    }
)
STORAGE = frozenset({AlertCause.SERVER_STORAGE})
LIMITS = frozenset({AlertCause.LIMIT_REACHED})
AUDIT = frozenset({AlertCause.AUDIT_BROKEN})
#: Older waiting events are an alert.
BEHIND_SECONDS = 60.0
#: The used share of a disk or of Redis's memory that is an alert.
FULL_SHARE = 0.9


def queues(lags: Sequence[health.Lag], *, now: datetime) -> Iterator[Condition]:
    """Yield the applications whose events wait, that exceed a quota or have invalid entries."""
    for lag in lags:
        yield from _behind(lag, now)
        yield from _over_quota(lag, now)
        if lag.quarantined:
            entries = plural(lag.quarantined, "invalid entry", "invalid entries")
            yield Condition(
                cause=AlertCause.QUARANTINE,
                application=lag.application,
                subject="",
                name=lag.application,
                title=f"{lag.application}: {entries} in quarantine",
                summary=f"{entries} in quarantine",
                detail="Agent and server may have different versions. Requeue or dismiss them.",
                path=f"/quarantine?application={quote(lag.application)}",
                count=lag.quarantined,
                since=now,
            )


def audit(*, now: datetime) -> Iterator[Condition]:
    """Yield whether the audit's chain is not whole."""
    check = audit_check()
    if check is not None and check.problem:
        yield Condition(
            cause=AlertCause.AUDIT_BROKEN,
            application="",
            subject="",
            name="The audit's chain is not whole",
            title="The audit's chain is not whole",
            detail=check.problem,
            path="/audit",
            since=now,
        )


def _behind(lag: health.Lag, now: datetime) -> Iterator[Condition]:
    seconds = lag.waiting_seconds or 0.0
    if seconds > BEHIND_SECONDS or (lag.overloaded and not lag.over_quota):
        batches = plural(lag.waiting or 0, "batch", "batches")
        waiting = f"{batches} of events not processed yet"
        yield Condition(
            cause=AlertCause.SERVER_BEHIND,
            application=lag.application,
            subject="",
            name=lag.application,
            title=f"{lag.application}: {waiting}",
            summary=waiting,
            detail="Pages show an earlier state. Check the load of the workers and of PostgreSQL.",
            path=application_path(lag.application),
            count=lag.waiting or 0,
            since=now - timedelta(seconds=seconds),
        )


def _over_quota(lag: health.Lag, now: datetime) -> Iterator[Condition]:
    usage = quota_check.usages().get(lag.application) if lag.over_quota else None
    for each in () if usage is None else usage.exceeded:
        yield Condition(
            cause=AlertCause.QUOTA_EXCEEDED,
            application=lag.application,
            subject=each.quota.value,
            name=lag.application,
            title=f"{lag.application}: {each.text}",
            summary=each.text,
            detail="Its agents report counts only. Repair the pipeline, or raise ARRESTER_QUOTAS.",
            path=application_path(lag.application),
            count=each.value,
            since=now,
        )


def limits(*, now: datetime) -> Iterator[Condition]:
    """Yield the limits that lately dropped something of an application; for quotas see `queues`."""
    for each in limits_reached(since=now - LATELY):
        if each.limit is store.Limit.QUOTA:
            continue
        yield Condition(
            cause=AlertCause.LIMIT_REACHED,
            application=each.application,
            subject=each.limit.value,
            name=each.application,
            title=shortened(f"{each.application}: {each.text}"),
            summary=shortened(each.text),
            detail="See the logs of its drivers: other programs may use its credential.",
            path=application_path(each.application),
            count=each.count,
            since=each.first_at,
        )


def processes(found: health.Health, *, now: datetime) -> Iterator[Condition]:
    """Yield the processes of the server that give no sign."""
    for name, reach in (("wake", found.wake), ("housekeeper", found.housekeeper)):
        if not reach.up and reach.last_seen is not None:
            yield Condition(
                cause=AlertCause.SERVER_PROCESS,
                application="",
                subject=name,
                name=f"Server process {name} is not running",
                title=f"Server process {name} is not running",
                detail=f"Last seen {reach.last_seen:%Y-%m-%d %H:%M} UTC.",
                path="/",
                since=reach.last_seen,
            )


def redis_memory(*, now: datetime) -> Iterator[Condition]:
    """Yield whether Redis is full; raise RedisError while it is away."""
    memory = redis_client.client().info("memory")
    used, most = int(memory["used_memory"]), int(memory.get("maxmemory") or 0)
    if most and used / most >= FULL_SHARE:
        yield _full("redis", f"Redis uses {used / most:.0%} of its memory", now)


def disk(*, now: datetime) -> Iterator[Condition]:
    """Yield whether the disk of the data folder is full; a server elsewhere has none."""
    folder = settings.ENVIRONMENT.home
    if not folder.is_dir():
        return
    usage = shutil.disk_usage(folder)
    # As `df`: what is reserved for root is not available.
    share = usage.used / (usage.used + usage.free)
    if share >= FULL_SHARE:
        free = usage.free / 2**30
        yield _full("disk", f"Disk of the data folder {share:.0%} full, {free:,.1f} GiB free", now)


def _full(subject: str, title: str, now: datetime) -> Condition:
    return Condition(
        cause=AlertCause.SERVER_STORAGE,
        application="",
        subject=subject,
        name=title,
        title=title,
        detail="Agents keep their events on their own disks when Redis is full.",
        path="/settings",
        since=now,
    )

"""The health of the control plane: lag, quarantine, reachable parts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection

from arrester.controlplane import models, redis_client, store
from arrester.controlplane.domain.errors import NotFound
from arrester.controlplane.outbound import backpressure, heartbeats
from arrester.controlplane.queries import cursors
from arrester.controlplane.queries.results import (
    Health,
    Lag,
    Page,
    Quarantined,
    Reach,
    Refusal,
    Storage,
)
from arrester.controlplane.views import row_mapping

#: Wake and the workers report every 5 s, the housekeeper after its work each hour.
SILENT_AFTER = {
    "wake": timedelta(seconds=30),
    "worker": timedelta(seconds=30),
    "housekeeper": timedelta(hours=3),
}
#: A pipeline that was stopped for long sends again what the log has: that is reported for this
#: long. One with a slow clock does so all the time.
OLD_FOR = timedelta(days=1)
_BUCKETS = ("minute_count", "hour_count", "minute_total", "hour_total", "held_change")


def lags() -> tuple[Lag, ...]:
    """Return the lag of each application, by name."""
    return _lags(store.all_streams())


def lag(application: str) -> Lag:
    """Return one application's lag; raise NotFound."""
    found = _lags([each for each in store.all_streams() if each.application == application])
    if not found:
        raise NotFound(f"there is no application {application!r}")
    return found[0]


def _lags(streams: Sequence[store.Stream]) -> tuple[Lag, ...]:
    now = datetime.now(UTC)
    aside = store.count_waiting_entries(old_since=now - OLD_FOR)
    loads = _loads([each.application for each in streams])
    return tuple(
        Lag(
            application=each.application,
            sequence=each.sequence,
            generation=each.generation,
            waiting=None if load is None else load.waiting,
            waiting_seconds=None if load is None else load.age(now=now),
            quarantined=aside.get(each.application, store.WaitingEntries()).not_understood,
            too_old=aside.get(each.application, store.WaitingEntries()).too_old,
            fold_seconds=None if load is None else load.behind(each.cursor),
            overloaded=load is not None and load.overloaded,
        )
        for each, load in zip(streams, loads, strict=True)
    )


def _loads(applications: Sequence[str]) -> Sequence[backpressure.Load | None]:
    """Return the load of each application; None while Redis is unreachable."""
    try:
        found = backpressure.loads(applications)
    except redis_client.RedisError:
        return [None] * len(applications)
    return [each if isinstance(each, backpressure.Load) else None for each in found]


def quarantine(
    application: str | None = None,
    *,
    waiting: bool = False,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[Quarantined]:
    """Return quarantined entries, newest first; with `waiting` only those that need an operator."""
    before = cursors.unpack(cursor, int)
    found = store.read_quarantine(
        application, waiting=waiting, before=before, limit=cursors.bounded(limit) + 1
    )
    kept = [_quarantined(each) for each in found]
    return cursors.page(kept, limit=limit, key=lambda each: each.id)


def quarantined(number: int) -> Quarantined:
    """Return one quarantined entry; raise NotFound."""
    found = store.read_quarantined_entry(number)
    if found is None:
        raise NotFound(f"there is nothing of number {number} in quarantine")
    return _quarantined(found)


def _quarantined(kept: store.QuarantinedEntry) -> Quarantined:
    return Quarantined(
        id=kept.id,
        application=kept.application,
        entry=kept.entry,
        batch=kept.batch,
        index=kept.index,
        reason=kept.reason,
        raw=kept.raw,
        received_at=kept.received_at,
        requeued_at=kept.requeued_at,
        too_old=kept.too_old,
        dismissed_at=kept.dismissed_at,
    )


def health() -> Health:
    """Return which parts answer, and since when the others do not; never raises."""
    now = datetime.now(UTC)
    redis = _redis()
    try:
        seen = dict(models.Sighting.objects.values_list("name", "at"))
    except (DatabaseError, InterfaceError) as exc:
        unknown = Reach(up=False, detail="not known while PostgreSQL is away")
        away = Reach(up=False, last_seen=heartbeats.postgres_seen(), detail=_first_line(exc))
        return Health(postgres=away, redis=redis, wake=unknown, worker=unknown, housekeeper=unknown)
    if not redis.up:
        redis = Reach(up=False, last_seen=seen.get("redis"), detail=redis.detail)
    return Health(
        postgres=Reach(up=True, last_seen=now),
        redis=redis,
        wake=_process("wake", seen, now=now),
        worker=_process("worker", seen, now=now),
        housekeeper=_process("housekeeper", seen, now=now),
    )


def storage() -> Storage:
    """Return the number of events, their stored sizes, and the retention time."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT parent.relname, sum(pg_total_relation_size(part.oid)),"
            " min(substring(part.relname from '_(\\d{8})$'))"
            " FROM pg_inherits JOIN pg_class part ON part.oid = inhrelid"
            " JOIN pg_class parent ON parent.oid = inhparent"
            " WHERE parent.relname IN ('event', 'batch') AND part.relkind = 'r'"
            " AND pg_relation_size(part.oid) > 0 GROUP BY 1"
        )
        logs = {name: (size, oldest) for name, size, oldest in cursor.fetchall()}
        tables = [*(each.table for each in row_mapping.STATES), *_BUCKETS]
        cursor.execute(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
            " WHERE relname = ANY(%s::text[]) AND relkind = 'r'",
            [tables],
        )
        (views,) = cursor.fetchone()
    event_bytes, oldest = logs.get("batch", (0, None))
    return Storage(
        events=sum(stream.sequence for stream in store.all_streams()),
        event_bytes=int(event_bytes),
        finding_bytes=int(logs.get("event", (0, None))[0]),
        view_bytes=int(views or 0),
        oldest=None if oldest is None else datetime.strptime(oldest, "%Y%m%d").replace(tzinfo=UTC),
        retention_days=settings.ENVIRONMENT.retention_days,
        command_expiry_seconds=settings.ENVIRONMENT.command_expiry_seconds,
        refusals=refusals(),
    )


def refusals() -> tuple[Refusal, ...]:
    """Return why retention drops nothing, oldest first; empty if it is not refused."""
    return tuple(
        Refusal(application=each.application, since=each.since, reason=each.reason)
        for each in models.RetentionRefusal.objects.order_by("since", "application")
    )


def _process(name: str, seen: dict[str, datetime], *, now: datetime) -> Reach:
    at = seen.get(name)
    if at is not None and now - at <= SILENT_AFTER[name]:
        return Reach(up=True, last_seen=at)
    return Reach(up=False, last_seen=at, detail=f"no sign of {name}")


def _redis() -> Reach:
    try:
        redis_client.client().ping()
    except redis_client.RedisError as exc:
        return Reach(up=False, detail=_first_line(exc))
    return Reach(up=True, last_seen=datetime.now(UTC))


def _first_line(exc: Exception) -> str:
    return str(exc).strip().partition("\n")[0]

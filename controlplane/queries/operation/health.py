"""The health of the control plane: lag, quarantine, reachable parts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from django.conf import settings
from django.db import DatabaseError, InterfaceError

from arrester.controlplane import models, store
from arrester.controlplane.outbound import backpressure
from arrester.controlplane.queries import paging, sql
from arrester.controlplane.queries.paging import Page
from arrester.controlplane.redis import reachability, redis_client
from arrester.controlplane.views import row_mapping
from arrester.domain.errors import NotFound

#: Wake and the workers report every 5 s, the housekeeper after its work each hour.
SILENT_AFTER = {
    "wake": timedelta(seconds=30),
    "worker": timedelta(seconds=30),
    "housekeeper": timedelta(hours=3),
}
#: A pipeline that was stopped for long sends again what the log has: that is reported for this
#: long. One with a slow clock does so all the time.
OLD_FOR = timedelta(days=1)
_BUCKETS = (
    *("minute_count", "hour_count", "minute_total", "hour_total", "hour_stage"),
    *("held_change", "held_minute", "flow_hour", "flow_minute", "flow_total", "failure_total"),
)


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """The newest log position of an application, and what waits in Redis."""

    application: str
    #: The newest log position, `flights @ 18,233`.
    sequence: int
    #: How often the Redis stream had to be restarted.
    generation: int
    #: Batches that wait in Redis; None while Redis is unreachable.
    waiting: int | None
    #: The age of the oldest of them; 0 if nothing waits.
    waiting_seconds: float | None
    #: Invalid entries in quarantine.
    quarantined: int
    #: Batches of the last day in quarantine because they are older than the replay horizon.
    too_old: int
    #: From the newest folded batch to the newest waiting one, by Redis's times.
    fold_seconds: float | None = None
    #: Agents were requested to report counts only until the fold has caught up.
    overloaded: bool = False
    #: Agents were requested to report counts only since the application exceeds a quota.
    over_quota: bool = False


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a part of the system answers; if not, since when."""

    up: bool
    #: When it last answered, as far as recorded.
    last_seen: datetime | None = None
    detail: str = ""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The reachable parts, as seen by a web process."""

    postgres: Reach
    redis: Reach
    wake: Reach
    worker: Reach
    housekeeper: Reach

    @property
    def parts(self) -> dict[str, Reach]:
        """Each part by its name."""
        return msgspec.structs.asdict(self)


#: The newest gaps that are shown.
SHOWN_GAPS = 5


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why no day of the log is dropped: the log and the views of an application differ."""

    application: str
    since: datetime
    reason: str


class LogGap(msgspec.Struct, frozen=True, kw_only=True):
    """Events that a log lacks, because PostgreSQL was restored from an older dump."""

    application: str
    #: The log positions of the missing events; later events have them now.
    first: int
    last: int
    noticed_at: datetime

    @property
    def missing(self) -> int:
        """The number of missing events."""
        return self.last - self.first + 1

    @property
    def before(self) -> int:
        """The log position of the last event before the gap."""
        return self.first - 1


class StorageUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The stored amounts; sizes include indexes."""

    #: The number of events since creation, including dropped ones.
    events: int
    #: The sizes of events with their bodies, and of the event index.
    event_bytes: int
    index_bytes: int
    view_bytes: int
    #: The first day of the log.
    oldest: datetime | None
    #: How long events are kept.
    retention_days: int
    #: The most gigabytes of events; 0: without limit.
    retention_gigabytes: int
    command_expiry_seconds: int
    #: No day is dropped while there are any.
    refusals: tuple[Refusal, ...] = ()


def lags() -> tuple[Lag, ...]:
    """Return the lag of each application, by name."""
    return _lags(store.all_streams())


def lag(application: str) -> Lag:
    """Return one application's lag; raise NotFound."""
    lags = _lags([each for each in store.all_streams() if each.application == application])
    if not lags:
        raise NotFound(f"there is no application {application!r}")
    return lags[0]


def _lags(streams: Sequence[store.LogStream]) -> tuple[Lag, ...]:
    now = datetime.now(UTC)
    counts = store.count_waiting_entries(old_since=now - OLD_FOR)
    loads = _loads([each.application for each in streams])
    return tuple(
        Lag(
            application=each.application,
            sequence=each.sequence,
            generation=each.generation,
            waiting=None if load is None else load.waiting,
            waiting_seconds=None if load is None else load.age(now=now),
            quarantined=counts.get(each.application, store.WaitingEntries()).invalid,
            too_old=counts.get(each.application, store.WaitingEntries()).too_old,
            fold_seconds=None if load is None else load.behind(each.cursor),
            overloaded=load is not None and load.overloaded,
            over_quota=load is not None and load.over_quota,
        )
        for each, load in zip(streams, loads, strict=True)
    )


def _loads(applications: Sequence[str]) -> Sequence[backpressure.Load | None]:
    """Return the load of each application; None while Redis is unreachable."""
    try:
        loads = backpressure.loads(applications)
    except redis_client.RedisError:
        return [None] * len(applications)
    return [each if isinstance(each, backpressure.Load) else None for each in loads]


def quarantine(
    application: str | None = None,
    *,
    waiting: bool = False,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[store.QuarantinedEntry]:
    """Return quarantined entries, newest first; with `waiting` only those that need an operator."""
    before = paging.unpack(cursor, int, of="quarantine")
    entries = store.read_quarantine(
        application, waiting=waiting, before=before, limit=paging.checked(limit) + 1
    )
    if sum(len(each.raw) for each in entries) >= store.quarantine.PAGE_BYTES:
        limit = min(limit, len(entries) - 1)
    return paging.page(entries, of="quarantine", limit=limit, key=lambda each: each.id)


def health() -> Health:
    """Return which parts answer, and since when the others do not; never raises."""
    now = datetime.now(UTC)
    redis = _redis()
    try:
        seen = dict(models.Sighting.objects.values_list("name", "at"))
    except (DatabaseError, InterfaceError) as exc:
        unknown = Reach(up=False, detail="unknown while PostgreSQL is unreachable")
        detail = reachability.postgres_cause() or _first_line(exc)
        away = Reach(up=False, last_seen=reachability.postgres_seen(), detail=detail)
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


def storage() -> StorageUsage:
    """Return the number of events, their stored sizes, and the retention time."""
    partitions = sql.rows(
        "SELECT parent.relname, sum(pg_total_relation_size(part.oid)),"
        " min(substring(part.relname from '_(\\d{8})$'))"
        " FROM pg_inherits JOIN pg_class part ON part.oid = inhrelid"
        " JOIN pg_class parent ON parent.oid = inhparent"
        " WHERE parent.relname IN ('event', 'batch') AND part.relkind = 'r'"
        " AND pg_relation_size(part.oid) > 0 GROUP BY 1"
    )
    logs = {name: (size, oldest) for name, size, oldest in partitions}
    ((views,),) = sql.rows(
        "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
        " WHERE relname = ANY(%s::text[]) AND relkind = 'r'",
        [[*(each.table for each in row_mapping.STATES), *_BUCKETS]],
    )
    event_bytes, oldest = logs.get("batch", (0, None))
    return StorageUsage(
        events=sum(stream.sequence for stream in store.all_streams()),
        event_bytes=int(event_bytes),
        index_bytes=int(logs.get("event", (0, None))[0]),
        view_bytes=int(views or 0),
        oldest=None if oldest is None else datetime.strptime(oldest, "%Y%m%d").replace(tzinfo=UTC),
        retention_days=settings.ENVIRONMENT.retention_days,
        retention_gigabytes=settings.ENVIRONMENT.retention_gigabytes,
        command_expiry_seconds=settings.ENVIRONMENT.command_expiry_seconds,
        refusals=refusals(),
    )


def refusals() -> tuple[Refusal, ...]:
    """Return why retention drops nothing, oldest first; empty if it is not refused."""
    return tuple(
        Refusal(application=each.application, since=each.since, reason=each.reason)
        for each in models.RetentionRefusal.objects.order_by("since", "application")
    )


def log_gaps(application: str | None = None) -> tuple[LogGap, ...]:
    """Return the gaps of the logs, or of one, newest first."""
    rows = models.LogGap.objects.order_by("-noticed_at", "-id")
    if application is not None:
        rows = rows.filter(application=application)
    return tuple(
        LogGap(
            application=each.application,
            first=each.first,
            last=each.last,
            noticed_at=each.noticed_at,
        )
        for each in rows[:SHOWN_GAPS]
    )


def _process(name: str, seen: dict[str, datetime], *, now: datetime) -> Reach:
    at = seen.get(name)
    # A time far ahead is from a clock that was wrong, and proves nothing either.
    if at is not None and abs(now - at) <= SILENT_AFTER[name]:
        return Reach(up=True, last_seen=at)
    return Reach(up=False, last_seen=at, detail=f"no sign of {name}")


def _redis() -> Reach:
    try:
        redis_client.client().ping()
    except redis_client.RedisError as exc:
        return Reach(up=False, detail=reachability.redis_cause() or _first_line(exc))
    return Reach(up=True, last_seen=datetime.now(UTC))


def _first_line(exc: Exception) -> str:
    return str(exc).strip().partition("\n")[0]

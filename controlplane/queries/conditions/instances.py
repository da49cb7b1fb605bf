"""Lost instances, failed drivers, and applications without an instance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode
from uuid import UUID

from arrester.controlplane.queries import sql
from arrester.controlplane.queries.conditions.causes import AlertCause, AllLimits
from arrester.controlplane.queries.conditions.condition import (
    Condition,
    application_path,
    duration,
    error_path,
    shortened,
)
from arrester.controlplane.queries.current_state.instances import LIVE
from arrester.controlplane.views import live_checkpoints, row_mapping
from arrester.domain.events import DRIVER
from arrester.domain.failure_text import cause
from arrester.domain.plural import plural
from arrester.domain.state.live_runs import live
from arrester.domain.state.states import (
    ENDED,
    ApplicationStatus,
    InstanceState,
    ThreadState,
    if_set,
)

# Instances that are live, those of runs, and the newest of each application.
_NEEDED = f"""(%s::text IS NULL OR application = %s) AND ({LIVE} OR id = ANY(%s::uuid[])
    OR (application, id) IN (SELECT DISTINCT ON (application) application, id FROM instance
        ORDER BY application, started_at DESC NULLS LAST, id DESC))"""
_HELD = f"""SELECT application, sum(held), min(since) FROM task
    WHERE held > 0 AND {live_checkpoints.OF_THREADS} GROUP BY 1"""
_EARLIEST = datetime.min.replace(tzinfo=UTC)
CAUSES = frozenset(
    {
        AlertCause.INSTANCE_LOST,
        AlertCause.DRIVER_FAILED,
        AlertCause.APPLICATION_SILENT,
        AlertCause.HELD_WITHOUT_INSTANCE,
    }
)


def read(
    threads: Sequence[ThreadState], application: str | None = None
) -> dict[UUID, InstanceState]:
    """Return the live instances, those of runs, and the newest of each application, or of one."""
    ended = [status.value for status in ENDED]
    ids = [each.instance for each in threads if each.instance is not None]
    parameters = [application, application, ended, ids]
    return {each.id: each for each in row_mapping.INSTANCES.load_readable(_NEEDED, parameters)}


def find(
    threads: Sequence[ThreadState],
    instances: Mapping[UUID, InstanceState],
    limits: AllLimits,
    *,
    now: datetime,
) -> Iterator[Condition]:
    """Yield the conditions of instances, and of applications that need one."""
    owners = {each.instance for each in threads}
    # A lost one whose runs were all taken over is over.
    alive = [
        each
        for each in instances.values()
        if not each.ended and (not each.lost or each.id in owners)
    ]
    for each in alive:
        if each.lost:
            yield _lost(each, now)
    yield from _failed(threads, instances.values(), now)
    yield from _silent({each.application for each in alive if not each.lost}, limits, now)
    names = {each.application for each in alive}
    without = [each for each in threads if each.application not in names]
    for name, held, since in sql.rows(_HELD, live_checkpoints.columns(without)):
        yield _held_without_instance(name, int(held), since or now)


def _lost(instance: InstanceState, now: datetime) -> Condition:
    heartbeat = if_set(instance.last_heartbeat)
    last = "" if heartbeat is None else f"Last heartbeat {heartbeat:%H:%M:%S} UTC. "
    where = f" on {instance.host}" if instance.host else ""
    return Condition(
        cause=AlertCause.INSTANCE_LOST,
        application=instance.application,
        subject=str(instance.id),
        name=instance.host or instance.application,
        title=f"{instance.application}: instance LOST{where}, no heartbeat",
        detail=f"{last}Its tasks may be stopped without a report.",
        summary=f"pid {instance.pid}, no heartbeat. The last known state is shown",
        path=application_path(instance.application, "instances"),
        since=heartbeat or instance.since or now,
    )


def _failed(
    threads: Sequence[ThreadState], instances: Iterable[InstanceState], now: datetime
) -> Iterator[Condition]:
    """Yield the newest instances whose script failed, unless a dead run has the same failure."""
    of_runs = {
        (run.application, run.failure.fingerprint)
        for run in live(threads)
        if run.failure is not None
    }
    newest = {
        each.application: each
        for each in sorted(instances, key=lambda each: (each.started_at or _EARLIEST, each.id))
    }
    for each in newest.values():
        failure = each.failure
        if failure is None or failure.stage != DRIVER:
            continue
        if (each.application, failure.fingerprint) in of_runs:
            continue
        yield Condition(
            cause=AlertCause.DRIVER_FAILED,
            application=each.application,
            subject="",
            name=f"driver on {each.host}" if each.host else each.application,
            title=f"{each.application}: the script of the driver failed: {failure.exception_class}",
            detail=shortened(failure.message),
            summary=shortened(cause(failure)),
            path=error_path(each.application, failure.fingerprint),
            since=each.since or now,
            fingerprint=failure.fingerprint,
        )


def _silent(present: Set[str], limits: AllLimits, now: datetime) -> Iterator[Condition]:
    if not limits.any("silent_hours"):
        return
    for state in row_mapping.APPLICATIONS.load_readable(
        "status = %s", [ApplicationStatus.OPEN.value]
    ):
        name, last = state.name, state.last_event_at
        hours = limits.of(name).silent_hours
        if not hours or last is None or name in present or now - last < timedelta(hours=hours):
            continue
        yield Condition(
            cause=AlertCause.APPLICATION_SILENT,
            application=name,
            subject="",
            name=name,
            title=f"{name}: no live instance for {duration(hours * 3600)} or longer",
            detail=f"The limit is {hours} h.",
            summary=f"no live instance for {duration(hours * 3600)} or longer",
            path=application_path(name),
            since=last,
        )


def _held_without_instance(application: str, held: int, since: datetime) -> Condition:
    records = plural(held, "held record")
    return Condition(
        cause=AlertCause.HELD_WITHOUT_INSTANCE,
        application=application,
        subject="",
        name=application,
        title=f"{application}: {records}, and no live instance",
        summary=f"{records}, and no live instance. Start an instance to resume, or dismiss the"
        " tasks",
        path=f"/held?{urlencode({'application': application})}",
        count=held,
        since=since,
    )

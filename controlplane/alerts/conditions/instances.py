"""Lost instances, and applications without an instance."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from arrester.controlplane import queries
from arrester.controlplane.alerts.causes import AlertCause, AllLimits
from arrester.controlplane.alerts.conditions.condition import (
    MOST,
    Condition,
    application_path,
    duration,
)
from arrester.controlplane.domain.state.states import ENDED, ApplicationStatus, InstanceState
from arrester.controlplane.views import row_mapping

_ENDED = [status.value for status in ENDED]


def find(limits: AllLimits, *, now: datetime) -> Iterator[Condition]:
    """Yield the lost instances whose runs no other one took over, and silent applications."""
    lost = f"lost AND status <> ALL(%s::text[]) AND {row_mapping.OWNS_A_RUN} LIMIT {MOST}"
    for each in row_mapping.INSTANCES.load_readable(lost, [_ENDED]):
        yield _lost(each, now)
    yield from _silent(limits, now)


def _lost(instance: InstanceState, now: datetime) -> Condition:
    heartbeat = instance.last_heartbeat
    last = f"Last heartbeat {heartbeat:%H:%M:%S} UTC. " if isinstance(heartbeat, datetime) else ""
    where = f" on {instance.host}" if instance.host else ""
    return Condition(
        cause=AlertCause.INSTANCE_LOST,
        application=instance.application,
        subject=str(instance.id),
        title=f"{instance.application}: instance LOST{where}, no heartbeat",
        detail=f"{last}Its tasks may be stopped without a report.",
        path=application_path(instance.application, "instances"),
        since=heartbeat if isinstance(heartbeat, datetime) else instance.since or now,
    )


def _silent(limits: AllLimits, now: datetime) -> Iterator[Condition]:
    states = row_mapping.APPLICATIONS.load_readable("status = %s", [ApplicationStatus.OPEN.value])
    limited = {each.name: each for each in states if limits.of(each.name).silent_hours}
    counts = queries.instance_counts([*limited])
    for name, state in limited.items():
        hours = limits.of(name).silent_hours or 0
        last = state.last_event_at
        live = counts[name]["alive"] - counts[name]["lost"]
        if live or last is None or now - last < timedelta(hours=hours):
            continue
        yield Condition(
            cause=AlertCause.APPLICATION_SILENT,
            application=name,
            subject="",
            title=f"{name}: no live instance for {duration(hours * 3600)} or longer",
            detail=f"The limit is {hours} h.",
            path=application_path(name),
            since=last,
        )

"""The present conditions that need a person: what alerts, pages, REST and metrics show.

Each needs a fixed number of statements for any number of pipelines, tasks and instances.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime
from uuid import UUID

import msgspec

from arrester.controlplane import redis_client
from arrester.controlplane.domain.state.states import InstanceState, ThreadState
from arrester.controlplane.queries.conditions import (
    commands,
    errors,
    flow,
    instances,
    pipelines,
    server,
    stops,
)
from arrester.controlplane.queries.conditions.causes import AlertCause, read_limits
from arrester.controlplane.queries.conditions.condition import Condition, Key, bounded
from arrester.controlplane.queries.operation.health import Health, Lag
from arrester.controlplane.views import row_mapping

_URGENCY = {cause: place for place, cause in enumerate(AlertCause)}


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The present conditions, and the causes that could not be checked."""

    #: The most urgent first; of one cause, that which lasts the longest.
    conditions: tuple[Condition, ...]
    unknown: Set[AlertCause] = frozenset()
    #: The keys of conditions that may come again at once: their record is tried again.
    retried: Set[Key] = frozenset()


def find(*, now: datetime) -> Found:
    """Return what needs a person now, with the moments that are news: new errors, vain commands.

    While Redis is away, what it has is unknown.
    """
    threads = row_mapping.THREADS.load_readable("true", [])
    drivers = instances.read(threads)
    found = lasting(now=now, threads=threads, drivers=drivers)
    retried = {*stops.retried(threads), *pipelines.restarted(threads, drivers)}
    moments = (*errors.new(now=now), *commands.without_effect(now=now))
    every = bounded([*found.conditions, *moments], now=now)
    return Found(conditions=_ordered(every), unknown=found.unknown, retried=retried)


def lasting(
    *,
    now: datetime,
    threads: Sequence[ThreadState] | None = None,
    drivers: Mapping[UUID, InstanceState] | None = None,
    lags: Sequence[Lag] | None = None,
    health: Health | None = None,
    application: str | None = None,
) -> Found:
    """Return the conditions that last until a person acts, or they end by themselves: all, or those
    of one application.

    `threads`, `drivers`, `lags` and `health` are of all applications, if the caller has read them.
    """
    limits = read_limits()
    if threads is None:
        where = "true" if application is None else "application = %s"
        threads = row_mapping.THREADS.load_readable(where, [application] if application else [])
    if drivers is None:
        drivers = instances.read(threads, application)
    stopped = stops.read(threads, drivers, now=now)
    found = [
        *stops.find(stopped, threads, limits, now=now),
        *pipelines.find(threads, stopped, limits, now=now),
        *instances.find(threads, drivers, limits, now=now),
        *flow.find(threads, drivers, limits, now=now),
        *errors.rates(limits, now=now),
        *commands.unanswered(now=now),
        *server.audit(now=now),
    ]
    unknown: Set[AlertCause] = frozenset()
    try:
        found += server.find(now=now, lags=lags, health_now=health)
    except redis_client.RedisError:
        unknown = server.CAUSES | {AlertCause.BATCH_LONG}
    of_application = (each for each in found if application in (None, each.application))
    wanted = bounded(of_application, now=now)
    return Found(conditions=_ordered(wanted), unknown=unknown)


def needing_attention(
    *,
    now: datetime,
    threads: Sequence[ThreadState] | None = None,
    lags: Sequence[Lag] | None = None,
    health: Health | None = None,
    application: str | None = None,
) -> tuple[Condition, ...]:
    """Return the conditions that lists show as long as they last; for the rest see `lasting`."""
    found = lasting(now=now, threads=threads, lags=lags, health=health, application=application)
    return tuple(each for each in found.conditions if each.cause.needs_attention)


def _ordered(found: Iterable[Condition]) -> tuple[Condition, ...]:
    return tuple(sorted(found, key=lambda each: (_URGENCY[each.cause], each.since, each.key)))

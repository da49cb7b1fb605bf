"""The present conditions that need a person: what alerts, pages, REST and metrics show.

Each needs a fixed number of statements for any number of pipelines, tasks and instances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import datetime
from functools import partial
from uuid import UUID

import msgspec

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
from arrester.controlplane.queries.conditions.isolation import Search, Seen
from arrester.controlplane.queries.operation import health as parts
from arrester.controlplane.queries.operation.health import Health, Lag
from arrester.controlplane.views import row_mapping
from arrester.domain.state.states import InstanceState, ThreadState

_URGENCY = {cause: place for place, cause in enumerate(AlertCause)}


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The present conditions, and the causes that could not be checked."""

    #: The most urgent first; of one cause, that which lasts the longest.
    conditions: tuple[Condition, ...]
    #: The causes whose search failed: in all applications, and in single ones.
    unknown: Set[AlertCause] = frozenset()
    unknown_of: Set[tuple[str, AlertCause]] = frozenset()
    #: The keys of conditions that may come again at once: their record is tried again.
    retried: Set[Key] = frozenset()

    def is_known(self, cause: str, application: str) -> bool:
        """Return whether a cause was checked in an application."""
        return cause not in self.unknown and (application, cause) not in self.unknown_of


def find(*, now: datetime) -> Found:
    """Return what needs a person now, with the moments that are news: new errors, vain commands.

    Unknown is what Redis has while it is away, and what a finder that raised would have found.
    """
    search = Search(now=now)
    seen, found = _lasting(search)
    found += search.run("new errors", errors.NEW, partial(errors.new, now=now))
    found += search.run("vain commands", commands.VAIN, partial(commands.without_effect, now=now))
    return _result(search, found, retried=[] if seen is None else _retried(search, seen))


def _retried(search: Search, seen: Seen) -> list[Key]:
    """Return the keys of conditions that may come again at once."""
    return [
        *search.run("retried tasks", stops.RETRIED, lambda: stops.retried(seen.threads)),
        *search.run_on(
            seen,
            "restarted pipelines",
            pipelines.RESTARTED,
            lambda some: pipelines.restarted(some.threads, some.drivers),
        ),
    ]


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
    search = Search(now=now)
    _, found = _lasting(search, threads, drivers, lags, health, application)
    return _result(search, found, application=application)


def _lasting(
    search: Search,
    threads: Sequence[ThreadState] | None = None,
    drivers: Mapping[UUID, InstanceState] | None = None,
    lags: Sequence[Lag] | None = None,
    health_now: Health | None = None,
    application: str | None = None,
) -> tuple[Seen | None, list[Condition]]:
    """Return what several finders read, None if it cannot be read, and the conditions that last."""

    def read() -> list[Seen]:
        where = "true" if application is None else "application = %s"
        named = [application] if application else []
        runs = row_mapping.THREADS.load_readable(where, named) if threads is None else threads
        known = instances.read(runs, application) if drivers is None else drivers
        return [Seen(threads=runs, drivers=known, limits=limits, now=now)]

    now, limits = search.now, read_limits()
    found = []
    seen = next(iter(search.run("runs and instances", _RUN_CAUSES, read)), None)
    if seen is not None:
        stopped = search.run_on(
            seen,
            "stopped tasks",
            stops.CAUSES,
            lambda some: stops.read(some.threads, some.drivers, now=now),
        )
        seen = msgspec.structs.replace(seen, stops=stopped)
        for name, causes, find_in in _RUN_FINDERS:
            found += search.run_on(seen, name, causes, find_in)
    found += search.run("failure rates", errors.RATES, partial(errors.rates, limits, now=now))
    found += search.run("open commands", commands.OPEN, partial(commands.unanswered, now=now))
    found += search.run("audit", server.AUDIT, partial(server.audit, now=now))
    found += search.run(
        "queues of events",
        server.QUEUES,
        lambda: server.queues(parts.lags() if lags is None else lags, now=now),
    )
    found += search.run("limits reached", server.LIMITS, partial(server.limits, now=now))
    found += search.run(
        "processes of the server",
        server.PROCESSES,
        lambda: server.processes(health_now or parts.health(), now=now),
    )
    found += search.run("memory of Redis", server.REDIS, partial(server.redis_memory, now=now))
    found += search.run("disk of the data folder", server.STORAGE, partial(server.disk, now=now))
    return seen, found


#: The causes of what concerns runs; and the finders, with their causes.
_RUN_CAUSES = stops.CAUSES | pipelines.CAUSES | instances.CAUSES | flow.CAUSES
_RUN_FINDERS: Sequence[tuple[str, Set[AlertCause], Callable[[Seen], Iterable[Condition]]]] = (
    (
        "stopped tasks and held records",
        stops.CAUSES,
        lambda seen: stops.find(seen.stops, seen.threads, seen.limits, now=seen.now),
    ),
    (
        "runs of pipelines",
        pipelines.CAUSES,
        lambda seen: pipelines.find(seen.threads, seen.stops, seen.limits, now=seen.now),
    ),
    (
        "instances",
        instances.CAUSES,
        lambda seen: instances.find(seen.threads, seen.drivers, seen.limits, now=seen.now),
    ),
    (
        "flow of pipelines",
        flow.CAUSES,
        lambda seen: flow.find(seen.threads, seen.drivers, seen.limits, now=seen.now),
    ),
)


def _result(
    search: Search,
    found: Sequence[Condition],
    *,
    retried: Iterable[Key] = (),
    application: str | None = None,
) -> Found:
    every = (*found, *search.faults)
    wanted = [each for each in every if application in (None, each.application)]
    return Found(
        conditions=_ordered(bounded(wanted, now=search.now)),
        unknown=search.unknown,
        unknown_of=search.unknown_of,
        retried={*retried},
    )


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

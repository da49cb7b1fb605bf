"""Whether this web process can serve requests, and what else is degraded, within a second.

The checks run in threads of their own: a request stops waiting for them after `WAIT_SECONDS`,
also if the look-up of a host name hangs. A check runs once at a time, and requests share its
result: many requests take no more threads than one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from threading import Lock
from typing import Final, Generic, TypeVar

import msgspec
from django.db import DatabaseError, InterfaceError, connection, connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from arrester.controlplane import store
from arrester.controlplane.outbound import backpressure
from arrester.controlplane.queries.conditions.server import BEHIND_SECONDS
from arrester.controlplane.redis import redis_client

T = TypeVar("T")
#: The most that a request waits for all checks together.
WAIT_SECONDS: Final = 0.8
_ERRORS = (DatabaseError, InterfaceError, redis_client.RedisError)


class FoldLag(msgspec.Struct, frozen=True, kw_only=True):
    """The largest lag of all applications: see `health.Lag`."""

    fold_seconds: float
    waiting_seconds: float


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """What the checks found; None: no answer in time."""

    #: The names of migrations that are not applied; None if PostgreSQL does not answer.
    missing_migrations: tuple[str, ...] | None
    redis: bool
    lag: FoldLag | None

    @property
    def failed(self) -> tuple[str, ...]:
        """What prevents this process from serving requests."""
        if self.missing_migrations is None:
            return ("postgres",)
        return ("migrations",) if self.missing_migrations else ()

    @property
    def degraded(self) -> tuple[str, ...]:
        """What pages report, and another web process would have, too."""
        behind = self.lag is not None and self.lag.waiting_seconds > BEHIND_SECONDS
        return (*(() if self.redis else ("redis",)), *(("fold",) if behind else ()))


class _Check(Generic[T]):
    """A check that runs once at a time."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._lock = Lock()
        self._running: Future[T | None] | None = None

    def start(self) -> Future[T | None]:
        """Return the run in progress, else a new one."""
        with self._lock:
            if self._running is None or self._running.done():
                self._running = _THREADS.submit(self._run)
            return self._running

    def _run(self) -> T | None:
        try:
            return self._function()
        except _ERRORS:
            return None
        finally:
            connections.close_all()


def readiness() -> Readiness:
    """Return what the checks found within `WAIT_SECONDS`; never raises."""
    deadline = time.monotonic() + WAIT_SECONDS
    migrations, redis, lag = _MIGRATIONS.start(), _REDIS.start(), _LAG.start()
    return Readiness(
        missing_migrations=_until(deadline, migrations),
        redis=_until(deadline, redis) is not None,
        lag=_until(deadline, lag),
    )


def missing_migrations() -> tuple[str, ...]:
    """Return the names of this version's migrations that are not applied, in their order.

    Those of a newer version do not count: it may migrate first.
    """
    applied = MigrationRecorder(connection).applied_migrations()
    return tuple(".".join(each) for each in _migrations() if each not in applied)


@cache
def _migrations() -> tuple[tuple[str, str], ...]:
    graph = MigrationLoader(None).graph
    plan = dict.fromkeys(node for leaf in graph.leaf_nodes() for node in graph.forwards_plan(leaf))
    return tuple(plan)


def _ping() -> bool:
    return bool(redis_client.client().ping())


def _fold_lag() -> FoldLag:
    streams, now = store.all_streams(), datetime.now(UTC)
    found = [
        (load.behind(stream.cursor), load.age(now=now))
        for stream, load in zip(
            streams, backpressure.loads([each.application for each in streams]), strict=True
        )
        if isinstance(load, backpressure.Load)
    ]
    return FoldLag(
        fold_seconds=max((fold for fold, _ in found), default=0.0),
        waiting_seconds=max((waiting for _, waiting in found), default=0.0),
    )


def _until(deadline: float, run: Future[T | None]) -> T | None:
    try:
        return run.result(max(0.0, deadline - time.monotonic()))
    except TimeoutError:
        return None


_MIGRATIONS: Final = _Check(missing_migrations)
_REDIS: Final = _Check(_ping)
_LAG: Final = _Check(_fold_lag)
_THREADS: Final = ThreadPoolExecutor(max_workers=3, thread_name_prefix="readiness")

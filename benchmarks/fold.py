"""Rate of the fold, from entries in Redis to committed events and views, and of two yardsticks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import UUID

from redis import Redis

from arrester.controlplane import embedded
from arrester.domain.identity import redis_keys
from arrester.domain.wire import codec
from benchmarks import servers, toy
from benchmarks.events import batches
from benchmarks.processes import timed

APPLICATIONS = ("flights", "trains")
_SPOOL = UUID(int=1)
Measurement = Callable[[embedded.Urls], float]

FOLD = "fold, 2 applications, 2 processes"
LIMIT = "`jsonb` limit, 1 process"
TOY = "toy, 2 Celery workers"


def measurements(*, events: int, toy_events: int) -> dict[str, Measurement]:
    """Return what is measured, by name: each returns events per second."""
    return {
        FOLD: partial(_folded, events),
        LIMIT: partial(_copied, events),
        TOY: partial(toy.measure, events=toy_events),
    }


def _copied(events: int, urls: embedded.Urls) -> float:
    servers.reset(urls)
    seconds = timed(("jsonb", APPLICATIONS[0], str(events)))
    return _rate(urls, "jsonb_event", events, seconds)


def _folded(events: int, urls: embedded.Urls) -> float:
    servers.reset(urls)
    with Redis.from_url(urls.redis) as redis:
        for application in APPLICATIONS:
            fill(redis, application, events)
    seconds = timed(*(("fold", application, str(events)) for application in APPLICATIONS))
    return _rate(urls, "event", events * len(APPLICATIONS), seconds)


def fill(redis: Redis, application: str, count: int) -> None:
    """Add events to an application's stream, as agents send them."""
    with redis.pipeline(transaction=False) as pipeline:
        for batch, events in batches(application, count):
            packed = codec.encode_batch(events)
            pipeline.xadd(
                redis_keys.events(application),
                {"batch": str(batch), "spool": str(_SPOOL), "events": packed},
            )
        pipeline.execute()


def _rate(urls: embedded.Urls, table: str, expected: int, seconds: float) -> float:
    """Return rows per second; raise RuntimeError unless all are there."""
    found = servers.count(urls, table)
    if found != expected:
        raise RuntimeError(f"{found} rows in {table} instead of {expected}")
    return expected / seconds

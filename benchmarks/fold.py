"""The fold, the whole way from an entry in Redis to committed and folded, beside its yardsticks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import UUID

from redis import Redis

from arrester.controlplane import embedded
from arrester.controlplane.domain.identity import redis_keys
from arrester.controlplane.domain.wire import codec
from benchmarks import servers, toy
from benchmarks.children import timed
from benchmarks.events import batches

APPLICATIONS = ("flights", "trains")
_SPOOL = UUID(int=1)
Measurement = Callable[[embedded.Urls], float]

LIMIT = "`jsonb` limit, 1 process"
CEILING = "own ceiling, 2 processes"
RECORDER = "pyeventsourcing's recorder, 1 process"
TOY = "toy, 2 Celery workers"
WHOLE_ONE = "fold, 1 application, 1 process"
WHOLE_TWO = "fold, 2 applications, 2 processes"


def measurements(*, events: int, toy_events: int) -> dict[str, Measurement]:
    """Return what there is to measure, by name: each gives events per second."""
    return {
        LIMIT: partial(_copied, "jsonb", "jsonb_event", APPLICATIONS[:1], events),
        CEILING: partial(_copied, "ceiling", "event", APPLICATIONS, events),
        WHOLE_ONE: partial(_folded, APPLICATIONS[:1], events),
        WHOLE_TWO: partial(_folded, APPLICATIONS, events),
        RECORDER: partial(_copied, "recorder", "recorded_event", APPLICATIONS[:1], events // 4),
        TOY: partial(toy.measure, events=toy_events),
    }


def _copied(
    kind: str, table: str, applications: tuple[str, ...], events: int, urls: embedded.Urls
) -> float:
    servers.freshen(urls)
    seconds = timed(*((kind, application, str(events)) for application in applications))
    return _rate(urls, table, events * len(applications), seconds)


def _folded(applications: tuple[str, ...], events: int, urls: embedded.Urls) -> float:
    servers.freshen(urls)
    with Redis.from_url(urls.redis) as redis:
        for application in applications:
            fill(redis, application, events)
    seconds = timed(*(("drain", application, str(events)) for application in applications))
    return _rate(urls, "event", events * len(applications), seconds)


def fill(redis: Redis, application: str, count: int) -> None:
    """Put so many events into an application's stream, as agents send them."""
    with redis.pipeline(transaction=False) as pipeline:
        for batch, events in batches(application, count):
            packed = codec.encode_batch(events)
            pipeline.xadd(
                redis_keys.events(application),
                {"batch": str(batch), "spool": str(_SPOOL), "events": packed},
            )
        pipeline.execute()


def _rate(urls: embedded.Urls, table: str, expected: int, seconds: float) -> float:
    """Return rows per second, after a look whether they are all there."""
    found = servers.count(urls, table)
    if found != expected:
        raise RuntimeError(f"{found} rows in {table}, {expected} were to be there")
    return expected / seconds

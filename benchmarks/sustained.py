"""Rate of the fold over millions of events ÷ the rate of its first seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import cycle
from typing import Any
from uuid import UUID

from redis import Redis

from arrester.controlplane import embedded
from arrester.domain.identity import redis_keys, uuids
from arrester.domain.wire import codec
from benchmarks import fold, servers
from benchmarks.events import EVENTS_PER_BATCH, batches
from benchmarks.processes import timed
from benchmarks.table import Figure

#: Entries that wait in each stream while there are more events to send.
WAITING_ENTRIES = 600
_FIRST_SECONDS = 5.0
_SPOOL = UUID(int=1)
_POLL_SECONDS = 0.05


def figures(urls: embedded.Urls, *, events: int) -> list[Figure]:
    """Return the rate over `events` events ÷ that of the first seconds, two processes."""
    servers.reset(urls)
    each = events // len(fold.APPLICATIONS)
    feeder = _Feeder(urls, each // EVENTS_PER_BATCH)
    feeder.start()
    children = (("fold", application, str(each)) for application in fold.APPLICATIONS)
    seconds = timed(*children)
    feeder.join()
    whole = events / seconds
    name = f"fold over {events:,} events ÷ its first {_FIRST_SECONDS:.0f} seconds"
    return [
        Figure(name="fold, sustained, events/s", value=whole),
        Figure(name=name, value=whole / feeder.first_rate, goal="≥ 0.6"),
    ]


class _Feeder(threading.Thread):
    """Keep entries waiting in Redis, and measure the rate of the first seconds.

    Batches are packed once and sent with new ids, since packing would take CPU from the fold.
    """

    def __init__(self, urls: embedded.Urls, batches_each: int) -> None:
        super().__init__(daemon=True)
        self._urls = urls
        self._left = dict.fromkeys(fold.APPLICATIONS, batches_each)
        self.first_rate = 0.0

    def run(self) -> None:
        sent, begin = 0, None
        with Redis.from_url(self._urls.redis) as redis:
            packed = {each: cycle(packed_batches(each)) for each in fold.APPLICATIONS}
            while any(self._left.values()):
                waiting = 0
                for application, found in packed.items():
                    have = redis.xlen(redis_keys.events(application))
                    sent += self._send(redis, application, found, WAITING_ENTRIES - have)
                    waiting += redis.xlen(redis_keys.events(application))
                folded = (sent - waiting) * EVENTS_PER_BATCH
                if begin is None and folded:
                    begin = time.perf_counter(), folded
                if begin and not self.first_rate:
                    seconds = time.perf_counter() - begin[0]
                    if seconds >= _FIRST_SECONDS:
                        self.first_rate = (folded - begin[1]) / seconds
                time.sleep(_POLL_SECONDS)

    def _send(
        self, redis: Redis, application: str, packed: Iterator[bytes], free_entries: int
    ) -> int:
        count = min(max(free_entries, 0), self._left[application])
        send_batches(redis, application, packed, count)
        self._left[application] -= count
        return count


def send_batches(redis: Redis, application: str, packed: Iterator[bytes], count: int) -> None:
    """Send batches with new ids."""
    now = datetime.now(UTC)
    with redis.pipeline(transaction=False) as pipeline:
        for _ in range(count):
            fields: dict[Any, Any] = {
                "batch": str(uuids.uuid7(now)),
                "spool": str(_SPOOL),
                "events": next(packed),
            }
            pipeline.xadd(redis_keys.events(application), fields)
        pipeline.execute()


def packed_batches(application: str) -> list[bytes]:
    """Return the batches of an application, as agents send them."""
    return [codec.encode_batch(events) for _, events in batches(application, 50_000)]

"""The fold over millions of events: does it keep the pace of its first seconds?"""

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
from arrester.controlplane.domain.identity import redis_keys, uuids
from arrester.controlplane.domain.wire import codec
from benchmarks import fold, servers
from benchmarks.children import timed
from benchmarks.events import EVENTS_PER_BATCH, batches
from benchmarks.table import Figure

#: Entries that wait for each application while there is more to come.
_AHEAD = 600
_FIRST_SECONDS = 5.0
_SPOOL = UUID(int=1)
_LOOK_SECONDS = 0.05


def figures(urls: embedded.Urls, *, events: int) -> list[Figure]:
    """Return the rate over `events` events ÷ that of the first seconds, two processes."""
    servers.freshen(urls)
    each = events // len(fold.APPLICATIONS)
    feeder = _Feeder(urls, each // EVENTS_PER_BATCH)
    feeder.start()
    children = (("keep_pace", application, str(each)) for application in fold.APPLICATIONS)
    seconds = timed(*children)
    feeder.join()
    whole = events / seconds
    name = f"fold over {events:,} events ÷ its first {_FIRST_SECONDS:.0f} seconds"
    return [
        Figure(name="fold, sustained, events/s", value=whole),
        Figure(name=name, value=whole / feeder.first_rate, goal="≥ 0.6"),
    ]


class _Feeder(threading.Thread):
    """Keeps a stock of entries in Redis, and notes how fast the first of them go.

    Batches are packed once and sent under new ids: to pack them anew would take the cores from
    those that are measured.
    """

    def __init__(self, urls: embedded.Urls, batches_each: int) -> None:
        super().__init__(daemon=True)
        self._urls = urls
        self._left = dict.fromkeys(fold.APPLICATIONS, batches_each)
        self.first_rate = 0.0

    def run(self) -> None:
        sent, begin = 0, None
        with Redis.from_url(self._urls.redis) as redis:
            packed = {each: cycle(_packed(each)) for each in fold.APPLICATIONS}
            while any(self._left.values()):
                waiting = 0
                for application, found in packed.items():
                    have = redis.xlen(redis_keys.events(application))
                    sent += self._send(redis, application, found, _AHEAD - have)
                    waiting += redis.xlen(redis_keys.events(application))
                folded = (sent - waiting) * EVENTS_PER_BATCH
                if begin is None and folded:
                    begin = time.perf_counter(), folded
                if begin and not self.first_rate:
                    seconds = time.perf_counter() - begin[0]
                    if seconds >= _FIRST_SECONDS:
                        self.first_rate = (folded - begin[1]) / seconds
                time.sleep(_LOOK_SECONDS)

    def _send(self, redis: Redis, application: str, packed: Iterator[bytes], room: int) -> int:
        count = min(max(room, 0), self._left[application])
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
        self._left[application] -= count
        return count


def _packed(application: str) -> list[bytes]:
    return [codec.encode_batch(events) for _, events in batches(application, 50_000)]

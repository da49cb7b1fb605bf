"""Sums of metrics of all processes of the server, in a hash of Redis.

A worker has no port that Prometheus could read, and a load balancer hides the web processes. So
each process adds what it has counted, and any web process gives the sums. Emptying Redis sets them
to zero, as restarts do for other programs.
"""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from arrester.controlplane.redis import redis_client
from arrester.domain.identity import redis_keys

log = logging.getLogger(__name__)
#: How long a web process collects before it adds its sums.
FLUSH_SECONDS: Final = 5.0
#: The name of a metric, its labels, and of a histogram the number of the bucket.
Field = tuple[str | int, ...]
#: In place of the number of a bucket: the sum of what was observed, in microseconds.
SUM: Final = "sum"
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram(NamedTuple):
    """A histogram of durations, and the upper limits of its buckets."""

    name: str
    limits: Sequence[float] = _SECONDS


HTTP: Final = Histogram("http_request_duration_seconds")
FOLD: Final = Histogram("fold_duration_seconds")
COMMANDS: Final = Histogram(
    "command_duration_seconds", (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
)
HTTP_REQUESTS: Final = "http_requests"
FOLD_ERRORS: Final = "fold_errors"


class _Pending:
    """What this process has not added yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Field] = Counter()

    def add(self, counts: Mapping[Field, int]) -> None:
        with self._lock:
            self._counts.update(counts)

    def take(self) -> Counter[Field]:
        with self._lock:
            counts, self._counts = self._counts, Counter()
            return counts


_PENDING: Final = _Pending()


def count(name: str, *labels: str) -> None:
    """Count one event under a metric and its labels."""
    _PENDING.add({(name, *labels): 1})


def observe(histogram: Histogram, *labels: str, seconds: float) -> None:
    """Add a duration to a histogram."""
    bucket = bisect_left(histogram.limits, seconds)
    field = (histogram.name, *labels)
    _PENDING.add({(*field, bucket): 1, (*field, SUM): round(seconds * 1_000_000)})


def flush() -> None:
    """Add the sums of this process to those of all; if Redis does not answer, later.

    If only its answer is lost, they are counted twice.
    """
    counts = _PENDING.take()
    if not counts:
        return
    try:
        with redis_client.client().pipeline(transaction=True) as pipe:
            for field, number in counts.items():
                pipe.hincrby(redis_keys.METRICS, msgspec.json.encode(field).decode(), number)
            pipe.execute()
    except redis_client.RedisError:
        _PENDING.add(counts)


def read() -> dict[Field, int]:
    """Return the sums of all processes; empty while Redis is unreachable."""
    flush()
    try:
        answer: Any = redis_client.client().hgetall(redis_keys.METRICS)
    except redis_client.RedisError:
        return {}
    return {tuple(msgspec.json.decode(field)): int(number) for field, number in answer.items()}


def flush_periodically() -> None:
    """Flush in a thread of this process, until it ends."""
    threading.Thread(target=_flush_forever, name="metric sums", daemon=True).start()


def _flush_forever() -> None:
    while True:
        time.sleep(FLUSH_SECONDS)
        try:
            flush()
        except Exception:
            # The thread is the only one: without it nothing would be added until a restart.
            log.exception("the sums of metrics were not added")

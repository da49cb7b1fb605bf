"""`make chaos ARGS=--noisy-neighbour`: one application sends what harms others, with a credential
of its own, while a quiet one reports failed records, each of which has to be on its page soon.

Each attack sends some megabytes, the last one as much as Redis takes; the limits are those of a
user who looks at the page.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from statistics import quantiles
from typing import Any, NamedTuple
from uuid import UUID

import psutil
from msgspec.structs import replace
from redis import Redis, RedisError

from arrester.controlplane.domain.events import (
    ApplicationShutdownRequested,
    Event,
    Failure,
    InstanceStarted,
    RecordFailed,
    Response,
    Run,
    TaskPaused,
    ThreadStarted,
)
from arrester.controlplane.domain.identity import redis_keys, uuids
from arrester.controlplane.domain.wire import codec, limits
from tests.chaos.product import Product
from tests.e2e.stack import eventually

NOISY, QUIET = "noisy", "quiet"
#: How long the quiet application is observed in each attack.
ATTACK_SECONDS = 20.0
#: The most that may pass from an event to its page, at p99, and from a new error to its alert.
PAGE_SECONDS, ALERT_SECONDS = 5.0, 10.0
#: What the processes may need above their memory when idle, in MB.
MEMORY_MB = 300
_BATCH = 500
_SPOOL, _INSTANCE = UUID(int=1), UUID(int=2)
_CREDENTIAL = """
from arrester.controlplane import actions
print(actions.add_agent_credential({name!r}, actor="operator").redis_url)
"""
_numbers = count(1)

Entry = dict[Any, Any]


class Result(NamedTuple):
    """What the quiet application saw during one attack."""

    attack: str
    entries: int
    seconds: list[float]
    alert_seconds: float
    memory_mb: int


def run(product: Product) -> int:
    """Attack, print what the quiet application saw, and return 1 if a limit was violated."""
    # This process sends what an agent would not encode.
    limits.BATCH_BYTES = sys.maxsize
    product.start()
    noisy, quiet = (_connect(product, each) for each in (NOISY, QUIET))
    _see(product, quiet)
    idle = _memory_mb(product)
    results = [_attack(product, noisy, quiet, name, idle) for name in ATTACKS]
    print("| attack | entries | event to page, p99, s | new error to alert, s | memory, MB more |")
    print("|---|---:|---:|---:|---:|")
    for each in results:
        slowest = quantiles(each.seconds, n=100)[98] if len(each.seconds) > 1 else 0.0
        print(
            f"| {each.attack} | {each.entries:,} | {slowest:.1f} | {each.alert_seconds:.1f} |"
            f" {each.memory_mb} |"
        )
    violations = [line for each in results for line in _violations(each)] + _untrue(product)
    for line in violations:
        print(f"VIOLATION: {line}")
    print(f"{len(violations)} violations")
    return 1 if violations else 0


def _violations(result: Result) -> Iterator[str]:
    if not result.seconds or quantiles([*result.seconds, 0.0], n=100)[98] > PAGE_SECONDS:
        yield f"{result.attack}: an event was on its page after {max(result.seconds, default=0)} s"
    if result.alert_seconds > ALERT_SECONDS:
        yield f"{result.attack}: a new error had its alert after {result.alert_seconds:.1f} s"
    if result.memory_mb > MEMORY_MB:
        yield f"{result.attack}: {result.memory_mb} MB above idle"


def _untrue(product: Product) -> list[str]:
    """Return what the server reports wrongly of the quiet application."""
    # Each attack has a record with a new error, too.
    sent = next(_numbers) - 1 + len(ATTACKS)
    shown: list[dict[str, int]] = []

    def is_true() -> bool:
        with suppress(OSError):
            shown.append(_counts(product))
        return bool(shown) and set(shown[-1].values()) == {sent}

    try:
        eventually(is_true, what=f"{sent} failed records of {QUIET}", every=1)
    except AssertionError:
        return [f"{sent} records failed, shown: {shown[-1:]}"]
    return []


def _counts(product: Product) -> dict[str, int]:
    """Return how many records of the quiet application have failed, as REST counts them."""
    lists = {"errors": "count", "failures": "count", "tasks": "failed"}
    counts = {"application": int(product.get(f"/api/applications/{QUIET}")["failed"])}
    for name, field in lists.items():
        rows = product.get(f"/api/{name}?application={QUIET}&limit=500")["results"]
        counts[name] = sum(each[field] for each in rows)
    return counts


def _attack(product: Product, noisy: Redis, quiet: Redis, name: str, idle: int) -> Result:
    over = threading.Event()
    entries = [0]

    def send() -> None:
        for entry in ATTACKS[name]():
            if over.is_set():
                return
            # Redis may refuse the entry: then this attack has reached its limit.
            with suppress(RedisError):
                noisy.xadd(redis_keys.events(NOISY), entry)
                entries[0] += 1

    attacker = threading.Thread(target=send, daemon=True)
    attacker.start()
    found: list[float] = []
    most, began = 0, time.monotonic()
    alerts: list[float] = []
    alert = threading.Thread(
        target=lambda: alerts.append(_alert_seconds(product, quiet)), daemon=True
    )
    alert.start()
    try:
        while time.monotonic() - began < ATTACK_SECONDS:
            found.append(_see(product, quiet))
            most = max(most, _memory_mb(product))
            time.sleep(0.3)
    finally:
        over.set()
        attacker.join()
        alert.join()
    print(f"{name}: {len(found)} events seen", file=sys.stderr, flush=True)
    return Result(name, entries[0], found, alerts[0], max(most - idle, 0))


def _see(product: Product, quiet: Redis) -> float:
    """Report a failed record; return the seconds until REST has it."""
    number, began = next(_numbers), time.monotonic()
    _report(quiet, number, "1-00112233445566aa")

    def is_shown() -> bool:
        rows = _rows(product, f"/api/failures?application={QUIET}&limit=20")
        return any(each["first_position"] == number for each in rows)

    return _seconds_until(is_shown, began)


def _alert_seconds(product: Product, quiet: Redis) -> float:
    """Report a new error; return the seconds until it has an alert."""
    began, fingerprint = time.monotonic(), f"1-{time.time_ns():016x}"[:18]
    _report(quiet, 0, fingerprint)

    def has_alert() -> bool:
        rows = _rows(product, f"/api/alerts?application={QUIET}&limit=50")
        return any(fingerprint in str(each) for each in rows)

    return _seconds_until(has_alert, began)


def _rows(product: Product, path: str) -> list[dict[str, Any]]:
    """Return the rows of a list; none if it is refused, as with 503."""
    try:
        rows: list[dict[str, Any]] = product.get(path)["results"]
    except OSError as exc:
        print(f"{path}: {exc}", file=sys.stderr, flush=True)
        return []
    return rows


def _seconds_until(look: Callable[[], bool], began: float) -> float:
    """Return the seconds until it is so; PATIENCE_SECONDS if that takes longer."""
    with suppress(AssertionError):
        eventually(look, what="it is shown", every=0.1)
    return time.monotonic() - began


def _report(quiet: Redis, number: int, fingerprint: str) -> None:
    failure = Failure(
        stage="process:check",
        exception_class="ValueError",
        message=f"error {fingerprint}",
        fingerprint=fingerprint,
    )
    failed = RecordFailed(task="a", position=number, failure=failure, response=Response.CONTINUE)
    start = [_event(ThreadStarted())] if number == 1 else []
    quiet.xadd(redis_keys.events(QUIET), _entry([*start, _event(failed)]))


def _event(data: Any, *, pipeline: str = "pipeline", instance: UUID = _INSTANCE) -> Event:
    run = Run(pipeline=pipeline, checkpoint=f"cp-{pipeline}", epoch=1)
    return Event(occurred_at=datetime.now(UTC), data=data, run=run, instance=instance)


def _entry(events: list[Event]) -> Entry:
    return {
        "batch": str(uuids.uuid7(datetime.now(UTC))),
        "spool": str(_SPOOL),
        "events": codec.encode_batch(events),
    }


def _failure(number: int, message: str = "bad") -> Failure:
    return Failure(
        stage="process:check",
        exception_class="ValueError",
        message=message,
        fingerprint=f"1-{number:016x}",
    )


def _paused_pipelines() -> Iterator[Entry]:
    """Send tasks that are PAUSED, each in a pipeline of its own."""
    for first in range(0, 5_000, _BATCH):
        yield _entry(
            [
                each
                for number in range(first, first + _BATCH)
                for each in (
                    _event(ThreadStarted(), pipeline=f"p-{number}"),
                    _event(
                        TaskPaused(task="a", position=1, failure=_failure(number)),
                        pipeline=f"p-{number}",
                    ),
                )
            ]
        )


def _new_errors() -> Iterator[Entry]:
    """Send records that fail, each with an error of its own."""
    for first in range(0, 10_000, _BATCH):
        yield _entry(
            [
                _event(
                    RecordFailed(
                        task="a",
                        position=number,
                        failure=_failure(number + 10**9),
                        response=Response.CONTINUE,
                    )
                )
                for number in range(first, first + _BATCH)
            ]
        )


def _shutdown_requests() -> Iterator[Entry]:
    """Send instances, and requests that each of them answers."""
    for first in range(10**6, 10**6 + 5_000, _BATCH):
        yield _entry(
            [
                replace(
                    _event(InstanceStarted(host="host", pid=1), instance=UUID(int=number)),
                    run=None,
                )
                for number in range(first, first + _BATCH)
            ]
        )
        requested = ApplicationShutdownRequested(reason="disk")
        yield _entry([replace(_event(requested), run=None)] * 200)


def _large_texts() -> Iterator[Entry]:
    """Send one letter, repeated: it needs few bytes on its way."""
    for number in range(50):
        failure = _failure(number + 2 * 10**9, "x" * 1_000_000)
        failed = RecordFailed(task="a", position=1, failure=failure, response=Response.CONTINUE)
        yield _entry([_event(failed)] * 20)


def _invalid_entries() -> Iterator[Entry]:
    for _ in range(500):
        yield {"batch": "none", "spool": "none", "events": b"\xff" * 200_000}


def _many_events() -> Iterator[Entry]:
    """Send as fast as Redis takes it."""
    failed = RecordFailed(task="a", position=1, failure=_failure(1), response=Response.CONTINUE)
    events = codec.encode_batch([_event(failed)] * 1_000)
    while True:
        yield _entry([]) | {"events": events}


#: What one application does, by its name in the table.
ATTACKS: dict[str, Callable[[], Iterator[Entry]]] = {
    "nothing, to compare": lambda: iter(()),
    "PAUSED pipelines": _paused_pipelines,
    "new error groups": _new_errors,
    "instances and requests to shut down": _shutdown_requests,
    "texts of a megabyte": _large_texts,
    "entries that cannot be read": _invalid_entries,
    "events without end": _many_events,
}


def _connect(product: Product, application: str) -> Redis:
    printed = product.manage("shell", "-v", "0", "-c", _CREDENTIAL.format(name=application))
    login = printed.split()[-1].partition("//")[2].rpartition("@")[0]
    return Redis.from_url(f"redis://{login}@127.0.0.1:{product.proxy.port}/0")


def _memory_mb(product: Product) -> int:
    """Return the memory of web and of the workers, the largest process of each."""
    most = []
    for part in ("web", "worker"):
        sizes = []
        for each in product.processes(part):
            with suppress(psutil.Error):
                sizes.append(each.memory_info().rss)
        most.append(max(sizes, default=0))
    return max(most) // 2**20

"""`make chaos-fold`: workers and PostgreSQL are killed at random while batches come, some twice.

At the end every event is in the log once and in the order it was sent, and the views are what the
log gives. `ARGS="--kills 20 --crashes 2 --seed 7"` runs a shorter or a known one.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from arrester.controlplane import embedded
from arrester.controlplane.embedded.postgres import Postgres
from arrester.domain.events import RecordFailed
from arrester.domain.identity import redis_keys, uuids
from tests import scratch, services
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from uuid import UUID

    from redis import Redis

    from arrester.domain.events import Event

APPLICATIONS = ("flights", "trains")
#: Two for each application fight for it.
WORKERS = APPLICATIONS * 2
TWICE = 0.03
#: More would only make the end longer.
MOST_IN_FLIGHT = 500


@dataclass(slots=True)
class Worker:
    """A process that folds one application until it is killed."""

    application: str
    child: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start it."""
        self.child = subprocess.Popen(
            [sys.executable, "-m", "tests.controlplane.fold_process", self.application],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        """Kill it at once."""
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()


@dataclass(slots=True)
class Sender:
    """The batches of an agent, some sent twice."""

    redis: Redis
    random: Random
    sent: dict[str, list[Event]] = field(
        default_factory=lambda: {each: [] for each in APPLICATIONS}
    )
    batches: dict[str, set[UUID]] = field(
        default_factory=lambda: {each: set() for each in APPLICATIONS}
    )
    doubled: int = 0

    def send(self) -> None:
        """Send a batch of each application, now and then twice."""
        from tests import histories
        from tests.controlplane import streams

        for application in APPLICATIONS:
            sent = self.sent[application]
            size = self.random.randint(1, 12)
            events = [histories.failed(len(sent) + number) for number in range(size)]
            batch = uuids.uuid7(datetime.now(UTC))
            sent += events
            self.batches[application].add(batch)
            twice = self.random.random() < TWICE
            self.doubled += twice
            for _ in range(1 + twice):
                streams.send(self.redis, events, batch=batch, application=application)

    def waiting(self) -> int:
        """How many entries are in flight."""
        return sum(self.redis.xlen(redis_keys.events(each)) for each in APPLICATIONS)

    def is_confirmed(self) -> bool:
        """Whether all batches are confirmed and gone from Redis."""
        from tests.controlplane import streams

        return self.waiting() == 0 and all(
            streams.confirmed(self.redis, each) == self.batches[each] for each in APPLICATIONS
        )


@dataclass(slots=True)
class Chaos:
    """Send, fold and kill at random."""

    sender: Sender
    random: Random
    postgres: Postgres
    workers: list[Worker] = field(default_factory=lambda: [Worker(each) for each in WORKERS])
    in_flight: int = 0

    def rage(self, *, kills: int, crashes: int) -> None:
        """Kill workers that many times, and PostgreSQL now and then."""
        crash_after = set(self.random.sample(range(kills), crashes))
        for number in range(kills):
            self._work()
            victim = self.random.choice(self.workers)
            self.in_flight += self.sender.waiting() > 0
            victim.kill()
            victim.begin()
            if number in crash_after:
                self._crash()
            print(f"\r{number + 1} kills", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)

    def calm(self) -> None:
        """Let a worker that is not killed fold the rest."""
        from arrester.controlplane.ingest import fold_stream

        for worker in self.workers:
            worker.kill()
        for application in APPLICATIONS:
            fold_stream.fold_stream(application, budget_seconds=PATIENCE_SECONDS)
        assert self.sender.is_confirmed(), f"{self.sender.waiting()} entries still wait"

    def _work(self) -> None:
        """Send for a moment that is long enough for a new worker to have begun, or is not."""
        until = time.monotonic() + self.random.uniform(0.05, 1.2)
        while time.monotonic() < until:
            if self.sender.waiting() < MOST_IN_FLIGHT:
                self.sender.send()
            self._revive()
            time.sleep(0.02)

    def _revive(self) -> None:
        for worker in self.workers:
            if worker.child.poll() is not None:
                worker.begin()

    def _crash(self) -> None:
        assert self.postgres.child is not None
        self.postgres.child.send_signal(signal.SIGKILL)
        self.postgres.child.wait()
        self.postgres.start()


@contextmanager
def product() -> Iterator[embedded.Servers]:
    """Run durable servers with a migrated database, and point Django at them."""
    with tempfile.TemporaryDirectory(prefix="arrester-chaos-", dir=scratch.FOLDER) as folder:
        Path(folder).chmod(0o711)
        with embedded.servers(Path(folder) / "home", durable=True) as servers:
            owner = servers.urls.migrate_database
            os.environ |= {
                "DATABASE_URL": servers.urls.database,
                "MIGRATE_DATABASE_URL": owner,
                "REDIS_URL": servers.urls.redis,
                "ARRESTER_SECRET_KEY": "only for chaos " * 4,
                "DJANGO_SETTINGS_MODULE": "arrester.controlplane.settings",
            }
            subprocess.run(
                [sys.executable, "manage.py", "migrate", "--verbosity", "0"],
                cwd=services.REPOSITORY,
                env=os.environ | {"DATABASE_URL": owner},
                check=True,
            )
            yield servers


def check(sender: Sender) -> None:
    """Raise AssertionError unless the log has each sent event once, in order."""
    from django.db import connection

    from tests.controlplane import streams

    connection.close()
    for application in APPLICATIONS:
        whole = streams.log(application)
        data = [each.event.data for each in whole]
        positions = [each.position or 0 for each in data if isinstance(each, RecordFailed)]
        lost = set(range(len(sender.sent[application]))) - set(positions)
        assert not lost, f"{application}: {len(lost)} events are lost, {sorted(lost)[:5]} first"
        assert len(positions) == len(set(positions)), f"{application}: events are there twice"
        assert positions == sorted(positions), f"{application}: the order is another"
        streams.assert_exact(application)


def main(arguments: list[str]) -> int:
    """Run the test and print the result."""
    parser = argparse.ArgumentParser(prog="make chaos-fold", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="kill -9 of a worker (200)")
    parser.add_argument("--crashes", type=int, default=10, help="kill -9 of PostgreSQL (10)")
    parser.add_argument("--seed", type=int, default=Random().randrange(10**6))
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", file=sys.stderr)
    with product() as servers:
        import django

        django.setup()
        from redis import Redis

        random = Random(options.seed)
        postgres = next(each for each in servers.running if isinstance(each, Postgres))
        with Redis.from_url(servers.urls.redis) as redis:
            sender = Sender(redis, random)
            chaos = Chaos(sender, random, postgres)
            try:
                chaos.rage(kills=options.kills, crashes=options.crashes)
                chaos.calm()
            finally:
                for worker in chaos.workers:
                    worker.kill()
            check(sender)
    events = sum(len(each) for each in sender.sent.values())
    batches = sum(len(each) for each in sender.batches.values())
    print(
        f"{options.kills} workers killed, {chaos.in_flight} of them with entries in flight;"
        f" PostgreSQL killed {options.crashes} times; {events} events in {batches} batches,"
        f" {sender.doubled} of them sent twice: none lost, none doubled, all in order"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A simulated fleet: the transport of real agents without Spark, and a server of several processes.

Agents and server share the machine. The CPU of the server is measured apart, so that its limit on
other machines follows from it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from statistics import quantiles

import psutil
import psycopg
from redis import Redis

from arrester.controlplane import embedded
from benchmarks import fleet_load, servers
from benchmarks.fleet_load import application
from tests.ports import free_port

#: Each process has so many agents at most: an agent has two threads and two connections.
AGENTS_PER_PROCESS = 100
_CELERY = ("-m", "celery", "-A", "arrester.controlplane", "worker", "--concurrency", "1")
_WEB = ("-m", "uvicorn", "arrester.controlplane.web.asgi:application", "--lifespan", "off")
COMMANDS = {
    "web": (*_WEB, "--no-access-log"),
    "wake": ("manage.py", "wake"),
    "worker": (*_CELERY, "--queues", "arrester", "--loglevel", "ERROR"),
    "housekeeper": (*_CELERY, "--queues", "arrester-housekeeping", "--loglevel", "ERROR"),
}
NUMBERS = {"web": 1, "wake": 1, "worker": 2, "housekeeper": 1}
#: A tenth of the applications have a burst for so long, once in a minute.
BURST_SECONDS, BURST_EVERY = 5.0, 60.0
#: A server keeps up if its queues are no older at the end of a step.
KEPT_UP_SECONDS = 2.0
_SAMPLED = 20_000
_MEGABYTE = 1 << 20


@dataclass(kw_only=True)
class Sample:
    """What was measured in one second."""

    at: float
    #: The age of the oldest waiting entry of all applications.
    age: float
    memory: dict[str, float]
    postgres: int
    redis: int
    redis_bytes: int


@dataclass(kw_only=True)
class Step:
    """The figures of a time at one rate."""

    rate: float
    events: int
    seconds: float
    #: Seconds of CPU of the server, by process.
    cpu: dict[str, float]
    samples: list[Sample]
    #: Milliseconds until events were visible.
    latencies: list[float]
    folds: int
    fold_seconds: float

    @property
    def kept_up(self) -> bool:
        """Whether nothing was left to fold, and everything was sent."""
        is_sent = self.events >= 0.9 * self.rate * self.seconds
        return is_sent and self.samples[-1].age <= KEPT_UP_SECONDS

    @property
    def server_cpu(self) -> float:
        """The mean number of busy CPUs of the server."""
        return sum(self.cpu.values()) / self.seconds

    def percentile(self, number: int) -> float:
        return quantiles(self.latencies, n=100)[number - 1] if len(self.latencies) > 1 else 0.0


@dataclass
class Fleet:
    """Running agents, and a server of several processes."""

    urls: embedded.Urls
    applications: int
    instances: int
    children: dict[str, list[psutil.Process]]
    agents: list[subprocess.Popen[str]]
    #: Commits by application: when, and the log position.
    commits: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))

    def step(self, rate: float, seconds: float, *, bursts: bool = False) -> Step:
        """Send at a rate, and measure."""
        each = rate / (self.applications * self.instances)
        before, folds = self._cpu(), _folds()
        ends = self._log_ends()
        began, samples = time.time(), list[Sample]()
        self._send_rate(fleet_load.line(each))
        is_burst = False
        while (now := time.time() - began) < seconds:
            due = bursts and now % BURST_EVERY >= BURST_EVERY - BURST_SECONDS
            if due is not is_burst:
                is_burst = due
                names = [application(number) for number in range(0, self.applications, 10)]
                self._send_rate(fleet_load.line(each, names if due else ()))
            samples.append(self._sample(now))
            time.sleep(max(0.0, began + len(samples) - time.time()))
        after, folded = self._cpu(), _folds()
        self._send_rate(fleet_load.line(0))
        time.sleep(KEPT_UP_SECONDS)
        now_ends = self._log_ends()
        return Step(
            rate=rate,
            events=sum(now_ends.values()) - sum(ends.values()),
            seconds=seconds,
            cpu={name: after[name] - before[name] for name in after},
            samples=samples,
            latencies=self._latencies(ends, now_ends),
            folds=folded[0] - folds[0],
            fold_seconds=folded[1] - folds[1],
        )

    def _send_rate(self, line: str) -> None:
        for each in self.agents:
            assert each.stdin is not None
            each.stdin.write(f"{line}\n")
            each.stdin.flush()

    def _cpu(self) -> dict[str, float]:
        return {
            name: sum(_cpu_seconds(each) for each in found) for name, found in self.children.items()
        }

    def _sample(self, now: float) -> Sample:
        from arrester.controlplane.outbound import backpressure

        at = datetime.now(UTC)
        loads = backpressure.loads([application(each) for each in range(self.applications)])
        with psycopg.connect(self.urls.admin_database, autocommit=True) as database:
            row = database.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
            ).fetchone()
        with Redis.from_url(self.urls.redis) as redis:
            info = redis.info()
        return Sample(
            at=now,
            age=max(each.age(now=at) for each in loads if isinstance(each, backpressure.Load)),
            memory={name: _memory(found) for name, found in self.children.items()},
            postgres=0 if row is None else int(row[0]) - 1,
            redis=int(info["connected_clients"]),
            redis_bytes=int(info["used_memory"]),
        )

    def _log_ends(self) -> dict[str, int]:
        from django.db import connection

        from arrester.controlplane import store

        try:
            return {each.application: each.sequence for each in store.all_streams()}
        finally:
            connection.close()

    def _latencies(self, before: dict[str, int], after: dict[str, int]) -> list[float]:
        """Return the milliseconds from some events to the commits that made them visible."""
        from django.db import connection

        from arrester.controlplane import store

        random = Random(1)
        logs = [name for name in after if after[name] > before.get(name, 0)]
        sizes = [after[name] - before.get(name, 0) for name in logs]
        picked = random.choices(logs, sizes, k=min(_SAMPLED, sum(sizes))) if logs else []
        places = {(name, random.randint(before.get(name, 0) + 1, after[name])) for name in picked}
        found = []
        for (name, sequence), stored in store.read_events(sorted(places)).items():
            commits = self.commits[name]
            index = bisect_left(commits, sequence, key=lambda each: each[1])
            if index < len(commits):
                found.append((commits[index][0] - stored.event.occurred_at.timestamp()) * 1000)
        connection.close()
        return found


def steps(
    urls: embedded.Urls,
    *,
    applications: int,
    tasks: int,
    instances: int,
    rates: Sequence[float],
    step_seconds: float,
    share: float,
    minutes: float,
) -> tuple[list[Step], Step]:
    """Measure growing rates until the server does not keep up, then a share of the last one."""
    servers.reset(urls)
    with running(urls, applications=applications, tasks=tasks, instances=instances) as fleet:
        found = []
        for rate in rates:
            found.append(fleet.step(rate, step_seconds))
            if not found[-1].kept_up:
                break
        limit = max((each.rate for each in found if each.kept_up), default=rates[0])
        fleet.step(0, 2 * step_seconds)
        return found, fleet.step(share * limit, minutes * 60, bursts=True)


@contextmanager
def running(
    urls: embedded.Urls, *, applications: int, tasks: int, instances: int
) -> Iterator[Fleet]:
    """Run the agents and the server until the block ends."""
    with ExitStack() as stopped:
        children = {
            name: [
                process
                for _ in range(number)
                for process in stopped.enter_context(_process(COMMANDS[name]))
            ]
            for name, number in NUMBERS.items()
        }
        children |= {name: _servers(urls, name) for name in ("postgres", "redis")}
        agents = [stopped.enter_context(each) for each in _agents(applications, tasks, instances)]
        for each in agents:
            assert each.stdout is not None
            if each.stdout.readline() != "ready\n":
                raise RuntimeError("a process of agents ended")
        fleet = Fleet(urls, applications, instances, children, agents)
        listener = threading.Thread(target=_listen, args=(urls, fleet.commits), daemon=True)
        listener.start()
        # The starts of all instances are folded first.
        time.sleep(10)
        yield fleet
        for each in agents:
            each.communicate(timeout=120)


def _agents(applications: int, tasks: int, instances: int) -> Iterator[subprocess.Popen[str]]:
    per_process = max(1, AGENTS_PER_PROCESS // instances)
    for first in range(0, applications, per_process):
        last = min(first + per_process, applications)
        words = ["-m", "benchmarks.fleet_agents", *map(str, (first, last, instances, tasks))]
        yield subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )


@contextmanager
def _process(words: Sequence[str]) -> Iterator[list[psutil.Process]]:
    port = ["--port", str(free_port())] if "uvicorn" in words else []
    child = subprocess.Popen(
        [sys.executable, *words, *port], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        time.sleep(5)
        found = psutil.Process(child.pid)
        yield [found, *found.children(recursive=True)]
    finally:
        child.terminate()
        child.wait(60)


def _servers(urls: embedded.Urls, name: str) -> list[psutil.Process]:
    """Return the process of an embedded server; PostgreSQL's own children come and go."""
    ours = psutil.Process().children()
    words = {"postgres": "postgres", "redis": "valkey"}[name]
    return [each for each in ours if words in each.name() or "redis-server" in each.name()][:1]


def _cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU of a process, and of its children that live or have ended."""
    total = 0.0
    with suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        total = times.user + times.system + times.children_user + times.children_system
        if process.name() == "postgres":
            for each in process.children():
                with suppress(psutil.NoSuchProcess):
                    own = each.cpu_times()
                    total += own.user + own.system
    return total


def _memory(found: Sequence[psutil.Process]) -> float:
    total = 0.0
    for each in found:
        with suppress(psutil.NoSuchProcess):
            family = [each, *each.children()] if each.name() == "postgres" else [each]
            total += sum(one.memory_full_info().pss for one in family) / _MEGABYTE
    return total


def _folds() -> tuple[int, float]:
    """Return the number of folds and their seconds so far."""
    from arrester.controlplane.redis import metric_sums

    sums = metric_sums.read()
    folds = {field: number for field, number in sums.items() if field[0] == metric_sums.FOLD.name}
    seconds = folds.pop((metric_sums.FOLD.name, metric_sums.SUM), 0) / 1e6
    return sum(folds.values()), seconds


def _listen(urls: embedded.Urls, commits: dict[str, list[tuple[float, int]]]) -> None:
    with (
        suppress(psycopg.OperationalError),  # the end of the server
        psycopg.connect(urls.database, autocommit=True) as database,
    ):
        database.execute("LISTEN arrester")
        for notification in database.notifies():
            name, _, sequence = notification.payload.partition(" ")
            commits[name].append((time.time(), int(sequence)))


def table(found: Sequence[Step]) -> str:
    """Return the steps as a table, with the busy CPUs of each kind of process."""
    kinds = list(found[0].cpu)
    names = ["events/s", "kept up", "folds/s", "ms/fold", "p50 ms", "p99 ms", "queue age s"]
    names += [f"CPU {kind}" for kind in kinds] + ["CPU in all"]
    lines = [f"| {' | '.join(names)} |", "|" + "---:|" * len(names)]
    for each in found:
        cells = [
            f"{each.events / each.seconds:,.0f}",
            "yes" if each.kept_up else "no",
            f"{each.folds / each.seconds:,.0f}",
            f"{each.fold_seconds * 1000 / max(each.folds, 1):.1f}",
            f"{each.percentile(50):,.0f}",
            f"{each.percentile(99):,.0f}",
            f"{max(one.age for one in each.samples):.1f}",
            *(f"{each.cpu[kind] / each.seconds:.2f}" for kind in kinds),
            f"{each.server_cpu:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def course(step: Step) -> str:
    """Return the queue age and the memory of each minute of a step."""
    names = list(step.samples[0].memory)
    head = " | ".join(["minute", "queue age s, most", "at its end", *(f"{n} MB" for n in names)])
    lines = [f"| {head} | PostgreSQL | Redis |", "|" + "---:|" * (len(names) + 5)]
    for minute in range(int(step.seconds // 60) or 1):
        found = [each for each in step.samples if each.at // 60 == minute]
        last = found[-1]
        # A burst is at the end of a minute.
        quiet = [each.age for each in found if BURST_EVERY - BURST_SECONDS - 5 <= each.at % 60 < 55]
        cells = [
            str(minute + 1),
            f"{max(each.age for each in found):.1f}",
            f"{min(quiet, default=last.age):.1f}",
            *(f"{last.memory[name]:,.0f}" for name in names),
            str(max(each.postgres for each in found)),
            str(max(each.redis for each in found)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    cpu = ", ".join(f"{name} {each / step.seconds:.2f}" for name, each in step.cpu.items())
    return "\n".join([*lines, "", f"CPU: {cpu}. PostgreSQL, Redis: connections."])

"""The whole product as processes of its own: web, wake, worker and a Spark driver."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import pyarrow.parquet as pq

from arrester.controlplane import signing
from arrester.controlplane.celery_workers import WORKER_OPTIONS
from arrester.examples import flights_data
from tests.patience import PATIENCE_SECONDS
from tests.ports import free_port
from tests.services import REPOSITORY

#: Up to here two records are implausible: JFK at 7,072 and EWR at 8,239.
ROWS = 9_000
ROWS_PER_FILE = 1_000
#: Run a command with another name of the host, in a namespace of its own.
RENAMED_HOST = [
    *("unshare", "--uts", *(["--map-root-user"] if os.geteuid() else [])),
    *("sh", "-c", 'hostname "$0" && SPARK_LOCAL_IP=127.0.0.1 exec "$@"'),
]

T = TypeVar("T")


def eventually(
    look: Callable[[], T], *, what: str, seconds: float = PATIENCE_SECONDS, every: float = 0.2
) -> T:
    """Return the first truthy answer of `look`; fails when there is none in `seconds`.

    A 503 is an answer to be repeated: PostgreSQL may be slow beside other tests.
    """
    deadline = time.monotonic() + seconds
    while True:
        answer: T | str
        try:
            answer = look()
        except urllib.error.HTTPError as exc:
            if exc.code != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            answer = str(exc)
        else:
            if answer:
                return answer
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}; last: {answer!r}"
        time.sleep(every)


@dataclass(slots=True)
class Stack:
    """The server's processes and drivers, in one folder; what is started here is stopped here."""

    folder: Path
    port: int = 0
    token: str = ""
    #: The credential of the driver's agent.
    redis_url: str = ""
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start web, wake and a worker; they find PostgreSQL and Redis in the environment."""
        self.port = free_port()
        python = sys.executable
        web = [
            python,
            "-m",
            "uvicorn",
            "arrester.controlplane.web.asgi:application",
            "--port",
            str(self.port),
        ]
        self.run("web", [*web, "--lifespan", "off", "--no-access-log"])
        self.run("wake", [python, "manage.py", "wake"])
        self.start_worker()
        eventually(self._answers, what="the web process answers")

    def start_worker(self) -> None:
        """Start a Celery worker."""
        celery = (sys.executable, "-m", "celery", "-A", "arrester.controlplane")
        self.run("worker", [*celery, "worker", "-c", "2", *WORKER_OPTIONS])

    def run(self, name: str, command: list[str], **variables: str) -> subprocess.Popen[bytes]:
        """Start a process whose output goes to `<folder>/<name>.log`."""
        spool = {"ARRESTER_SPOOL": str(self.folder / "spool")}
        # Drivers accept only what the server signed.
        key = {"ARRESTER_SERVER_KEY": signing.public_key()}
        env = os.environ | spool | key | {"ARRESTER_URL": self.url} | variables
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env=env,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes[name] = process
        return process

    def start_driver(self, *, hostname: str | None = None) -> subprocess.Popen[bytes]:
        """Start a Spark driver over the input; one runs at a time.

        With `hostname` its machine seems to have that name.
        """
        command = [sys.executable, "-m", "tests.e2e.driver", str(self.folder)]
        if hostname is not None:
            command = [*RENAMED_HOST, hostname, *command]
        return self.run("driver", command, REDIS_URL=self.redis_url)

    def wait_for_driver(self, *, seconds: float) -> int:
        """Return the code that the driver ends with by itself."""
        return self._processes["driver"].wait(seconds)

    def kill(self, name: str) -> None:
        """Kill a process and all its children with SIGKILL."""
        process = self._processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_SECONDS)

    def stop(self) -> None:
        """End what still runs."""
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        for name in list(self._processes):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._processes[name].wait(PATIENCE_SECONDS)
            self._end_group(name)

    def _end_group(self, name: str) -> None:
        process = self._processes.pop(name)
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        process.wait(PATIENCE_SECONDS)

    def cli(self, *words: str) -> str:
        """Run a command of the command line; return what it prints; fails when it does."""
        connection = {"ARRESTER_URL": self.url, "ARRESTER_TOKEN": self.token}
        done = subprocess.run(
            [sys.executable, "-m", "arrester", *words],
            cwd=REPOSITORY,
            env=os.environ | connection,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def manage(self, *words: str) -> str:
        """Run a management command; return what it prints; fails when it does."""
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def get(self, path: str) -> Any:
        """Return what the REST API answers at `path`."""
        request = urllib.request.Request(
            f"{self.url}{path}", headers={"Authorization": f"Bearer {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
            return json.load(response)

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Return the status and what the REST API answers to `body`."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)

    def all_of(self, path: str) -> list[dict[str, Any]]:
        """Return the rows of all pages behind `path`."""
        rows: list[dict[str, Any]] = []
        page = self.get(f"{path}?limit=500")
        while True:
            rows += page["results"]
            if not page["next"]:
                return rows
            page = self.get(f"{path}?limit=500&cursor={quote(page['next'])}")

    def failure_counts(self, application: str) -> dict[str, int]:
        """Return how many records have failed, as each page counts them."""
        return {
            "application": self.get(f"/api/v1/applications/{application}")["failed"],
            "groups": sum(group["count"] for group in self.all_of("/api/v1/errors")),
            "failures": sum(row["count"] for row in self.all_of("/api/v1/failures")),
            "tasks": sum(task["failed"] for task in self.all_of("/api/v1/tasks")),
        }

    def task(self, key: str) -> dict[str, Any]:
        """Return a task as the API shows it; before its first failure it is RUNNING."""
        found = (task for task in self.all_of("/api/v1/tasks") if task["key"] == key)
        return next(found, {"status": "RUNNING", "held": 0, "position": None})

    def is_paused(self, key: str) -> bool:
        """Whether the task is PAUSED as far as the API knows."""
        return bool(self.task(key)["status"] == "PAUSED")

    def command(self, **requested: Any) -> dict[str, Any]:
        """Issue a command and return it when its status is final."""
        status, command = self.post("/api/v1/commands", requested)
        assert status in (201, 202), command
        return self.answer(command["id"])

    def answer(self, id: str) -> dict[str, Any]:
        """Return a command once nothing can follow."""

        def final() -> dict[str, Any]:
            command: dict[str, Any] = self.get(f"/api/v1/commands/{id}")
            return {} if command["status"] in ("ISSUED", "DELIVERED") else command

        return eventually(final, what=f"command {id} has an answer")

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.url}/healthz", timeout=5).close()
        except (OSError, urllib.error.URLError):
            return False
        return True


def make_input(folder: Path) -> list[dict[str, Any]]:
    """Write the first flights as files into `folder`/input; return their rows."""
    rows: list[dict[str, Any]] = list(islice(flights_data.rows(), ROWS))
    (folder / "input").mkdir(parents=True)
    flights_data.write(rows, folder / "input", rows_per_file=ROWS_PER_FILE)
    return rows


def without_departure(rows: list[dict[str, Any]]) -> int:
    """Return how many of the flights never left, counted without Spark and without us."""
    return sum(row["value"].split(",")[3] == "NA" for row in rows)


def sink_positions(folder: Path, key: str) -> list[int]:
    """Return the positions of a task's rows in the sink, by the sink's number, then as written."""
    positions: list[int] = []
    for part in sorted((folder / "sink").glob("number=*")):
        if not (part / "_SUCCESS").exists():
            continue  # being written
        written = pq.read_table(part, columns=["origin", "position"]).to_pylist()
        positions += sorted(row["position"] for row in written if row["origin"] == key)
    return positions


def dead_letters(folder: Path) -> list[dict[str, Any]]:
    """Return the dead letters in complete folders."""
    found: list[dict[str, Any]] = []
    for complete in (folder / "dead-letters").glob("day=*/*/_SUCCESS"):
        for part in complete.parent.glob("*.parquet"):
            found += pq.ParquetFile(part).read().to_pylist()
    return found

"""The processes of the Helm chart start with the commands and the environment that it declares.

Not every machine has Kubernetes. The containers of the rendered chart therefore run as plain
processes with the declared environment, and a Secret that has the URLs of the embedded servers.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis import Redis

from arrester.controlplane import embedded
from tests import histories, images, services
from tests.controlplane import streams
from tests.declared_processes import started, wait_until
from tests.deploy.chart import (
    EVERYTHING,
    EXTERNAL,
    SECRET,
    Manifest,
    environment,
    main_container,
    of_kind,
    pods,
    rendered,
)
from tests.patience import PATIENCE_SECONDS
from tests.ports import free_port

pytestmark = pytest.mark.helm

DATABASE = "arrester_chart"
#: Each part on, except for the bundled servers, which `test_compose` starts.
EVERYTHING_ELSE = (EVERYTHING, "--set", "postgres.bundled=false", "--set", "redis.bundled=false")


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The pods of a release, which run in a folder."""

    pods: Mapping[str, Manifest]
    secret: Mapping[str, str]
    folder: Path
    port: int

    def environment(self, container: Manifest) -> dict[str, str]:
        """Return the declared environment with what the image adds."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        image = {"PATH": path, "ARRESTER_HOME": str(self.folder)}
        return image | environment(container, self.secret)

    def run(self, process: str, stack: ExitStack) -> subprocess.Popen[bytes]:
        """Run the container of a process until the stack is closed."""
        container = main_container(self.pods[process])
        return stack.enter_context(
            started(
                container["command"],
                self.environment(container),
                self.log(process),
                port=self.port,
            )
        )

    def log(self, process: str) -> Path:
        return self.folder / f"{process}.log"

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Request a path of the web process; 0 while it does not listen."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            try:
                connection.request("GET", path, headers=headers)
            except ConnectionRefusedError:
                return 0, ""
            response = connection.getresponse()
            return response.status, response.read().decode()


@pytest.fixture
def empty_database(fresh_database: embedded.Urls) -> Iterator[embedded.Urls]:
    """Return the URLs of a database without tables."""
    services.create(fresh_database, DATABASE)
    yield embedded.Urls(
        database=services.with_name(fresh_database.database, DATABASE),
        migrate_database=services.with_name(fresh_database.migrate_database, DATABASE),
        admin_database=fresh_database.admin_database,
        redis=fresh_database.redis,
        broker=fresh_database.broker,
    )
    services.drop(fresh_database, DATABASE)


@pytest.fixture(params=[(EXTERNAL,), EVERYTHING_ELSE], ids=["external", "everything"])
def release(
    request: pytest.FixtureRequest, empty_database: embedded.Urls, tmp_path: Path
) -> Release:
    urls = {
        "DATABASE_URL": empty_database.database,
        "MIGRATE_DATABASE_URL": empty_database.migrate_database,
        "REDIS_URL": empty_database.redis,
        "ARRESTER_BROKER_URL": empty_database.broker,
    }
    return Release(
        pods=pods(rendered(*request.param)),
        secret=SECRET | urls,
        folder=tmp_path,
        port=free_port(),
    )


def test_the_declared_processes_migrate_start_and_fold_an_event(
    release: Release, redis: Redis
) -> None:
    with ExitStack() as stack:
        migrate_while_a_pod_waits(release, stack)
        processes = {each: release.run(each, stack) for each in ("web", "worker", "wake")}

        def until(process: str, condition: Callable[[], bool]) -> None:
            wait_until(condition, processes[process], release.log(process))

        probe = main_container(release.pods["web"])["readinessProbe"]["httpGet"]["path"]
        until("web", lambda: release.get(probe)[0] == 200)
        assert json.loads(release.get(probe)[1])["failed"] == []
        until("worker", lambda: answers(release, "worker"))
        streams.send(redis, [histories.failed(1)])
        until("worker", lambda: folded(release) > 0)
        processes["housekeeper"] = release.run("housekeeper", stack)
        until("housekeeper", lambda: "ready." in release.log("housekeeper").read_text())
        assert {name: each.poll() for name, each in processes.items()} == dict.fromkeys(processes)


def migrate_while_a_pod_waits(release: Release, stack: ExitStack) -> None:
    """Run the migration; the init container of web ends after it."""
    [waiting] = release.pods["web"]["spec"]["initContainers"]
    loop = re.fullmatch(r"until (.+); do sleep 2; done", waiting["command"][2])
    assert loop is not None
    env = release.environment(waiting)
    check = subprocess.run(
        shlex.split(loop[1]),
        cwd=images.working_directory("server"),
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (check.returncode, check.stderr) == (1, "")
    log = release.log("wait")
    pod = stack.enter_context(started(waiting["command"], env, log))
    migration = release.run("migrate", stack)
    assert migration.wait(PATIENCE_SECONDS) == 0, release.log("migrate").read_text()
    report = release.log("migrate").read_text()
    assert "created user admin, password from ARRESTER_ADMIN_PASSWORD" in report
    assert not [each for each in release.secret.values() if each in report]
    assert pod.wait(PATIENCE_SECONDS) == 0, log.read_text()


def answers(release: Release, process: str) -> bool:
    """Return whether the declared probe of a worker succeeds."""
    container = main_container(release.pods[process])
    command = container["readinessProbe"]["exec"]["command"]
    env = release.environment(container)
    return (
        subprocess.run(
            command, cwd=images.working_directory("server"), env=env, check=False
        ).returncode
        == 0
    )


def folded(release: Release) -> int:
    """Return the events that /metrics has, with the metric by which workers are scaled."""
    env = release.environment(main_container(release.pods["web"]))
    create = [sys.executable, "-m", "arrester", "create_token", "viewer", "prometheus"]
    token = release.folder / "token"
    if not token.exists():
        made = subprocess.run(
            create, cwd=images.working_directory("server"), env=env, capture_output=True, check=True
        )
        token.write_bytes(made.stdout)
    status, text = release.get(
        "/metrics",
        Host="arrester-web.observability.svc:8000",
        Authorization=f"Bearer {token.read_text().strip()}",
    )
    assert status == 200, text
    [scaler] = of_kind(rendered(EVERYTHING), "HorizontalPodAutoscaler").values()
    metric = scaler["spec"]["metrics"][0]["external"]["metric"]["name"]
    assert f"# TYPE {metric} gauge" in text
    found = re.search(
        r'^arrester_events_folded_total\{application="\w+"\} (\S+)', text, re.MULTILINE
    )
    return 0 if found is None else int(float(found[1]))

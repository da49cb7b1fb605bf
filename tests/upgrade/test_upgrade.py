"""An installation of 0.2.0, built from its commit, is upgraded: the server first, then its drivers.

Log, accounts, spool, checkpoint, held records and dead letters are those that 0.2.0 wrote.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import ExitStack
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.controlplane.management.test_up import home
from tests.e2e.stack import Stack, eventually, sink_positions
from tests.patience import PATIENCE_SECONDS
from tests.services import REPOSITORY
from tests.test_wheel import UV, distributions, environment, run
from tests.upgrade.installation import APPLICATION, Version

__all__ = ["distributions", "home"]
pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]
#: The commit of the release.
RELEASE = "b8085f96709bf324428675ec342ce80456ca7a03"
EXTRAS = "agents,cli,embedded,server,spark"


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """Install 0.2.0 with the packages that it was released with."""
    archive = subprocess.run(
        ["git", "archive", RELEASE], cwd=REPOSITORY, capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip(f"this clone does not have the commit of 0.2.0, {RELEASE}")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as source:
        source.extractall(folder / "source", filter="data")
    run(UV, "build", "--no-config", "--no-build-isolation", "--python", sys.executable,
        "--wheel", "--out-dir", folder, folder / "source")  # fmt: skip
    [wheel] = folder.glob("*.whl")
    pins = folder / "source" / "requirements" / "dev.txt"
    extras = EXTRAS.replace("cli,", "")
    return Version(environment(folder / "venv", wheel, extras, Path(sys.executable), pins))


@pytest.fixture(scope="module")
def now(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Version:
    folder = tmp_path_factory.mktemp("now")
    return Version(environment(folder / "venv", distributions[1], EXTRAS, Path(sys.executable)))


class Pipeline:
    """The input and the output of the pipeline of all versions."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder, 0
        (folder / "in").mkdir()

    def add(self, *rows: tuple[str, int, str]) -> None:
        """Add rows as one file of the source."""
        lines = [json.dumps({"origin": t, "position": p, "value": v}) for t, p, v in rows]
        draft = self.folder / "draft"
        draft.write_text("\n".join(lines))
        draft.rename(self.folder / "in" / f"{self.files}.json")
        self.files += 1

    def wait_for(self, **positions: list[int]) -> None:
        """Wait until the sink has these positions of these tasks, in this order."""

        def is_there() -> bool:
            return {key: sink_positions(self.folder, key) for key in positions} == positions

        eventually(is_there, what=f"the sink has {positions}")


def wait_for_pauses(get: Callable[[], list[dict[str, Any]]], *keys: str) -> None:
    """Wait until exactly these tasks are PAUSED as far as REST knows."""

    def paused() -> bool:
        return sorted(each["key"] for each in get() if each["status"] == "PAUSED") == list(keys)

    eventually(paused, what=f"tasks {keys} are PAUSED")


def skip(server: Stack, key: str) -> None:
    """Skip the record that stopped a task, as soon as that is possible.

    The driver before was killed: commands to it expire, and the next one tries the record again.
    """
    [task] = [each["id"] for each in server.all_of("/api/v1/tasks") if each["key"] == key]

    def is_applied() -> bool:
        words = {"kind": "SKIP_RECORD", "task": task, "reason": "upgraded"}
        status, answer = server.post("/api/v1/commands", words)
        if status == HTTPStatus.CONFLICT:
            return False
        return bool(server.answer(answer["id"])["status"] == "APPLIED")

    eventually(is_applied, what=f"a skip of {key}")


def test_a_server_and_then_its_drivers_are_upgraded(
    before: Version, now: Version, home: Path
) -> None:
    pipeline = Pipeline(home.parent)
    pipeline.add(("a", 0, "x"), ("a", 1, "bad"), ("a", 2, "x"), ("b", 0, "skip"), ("b", 1, "x"))
    with ExitStack() as machine:
        with before.server(home) as server:
            token = before.manage(home, "drf_create_token", "operator").split()[2]
            machine.enter_context(before.driver(home))
            pipeline.wait_for(a=[0], b=[1])

            def tasks() -> list[dict[str, Any]]:
                login = {"Authorization": f"Token {token}"}
                address = f"{server.url}/api/tasks"
                answer = requests.get(address, headers=login, timeout=PATIENCE_SECONDS)
                return list(answer.json()["results"])

            wait_for_pauses(tasks, "a")
        # The server is stopped, and the driver goes on: its events wait in the spool.
        pipeline.add(("c", 0, "bad"), ("c", 1, "x"), ("d", 0, "x"))
        pipeline.wait_for(d=[0])

    # A new server, and a driver that is not upgraded yet.
    with now.server(home) as server:
        server.token = now.manage(home, "create_token", "operator", "upgrade", "--scope", "operate")
        wait_for_pauses(lambda: server.all_of("/api/v1/tasks"), "a")
        with before.driver(home):
            wait_for_pauses(lambda: server.all_of("/api/v1/tasks"), "a", "c")
            skip(server, "c")
            pipeline.wait_for(a=[0], b=[1], c=[1], d=[0])

        # A new driver continues the checkpoint, the spool and what is held.
        with now.driver(home):
            skip(server, "a")
            pipeline.wait_for(a=[0, 2], b=[1], c=[1], d=[0])
            wait_for_pauses(lambda: server.all_of("/api/v1/tasks"))
            now.manage(home, "rebuild")
            redrive(server, "b")
            pipeline.wait_for(a=[0, 2], b=[1, 0], c=[1], d=[0])
        assert now.manage(home, "rebuild", "--verify").endswith("0 rows differ")


def redrive(server: Stack, key: str) -> None:
    """Redrive the dead letter that 0.2.0 wrote, mended."""
    [found] = [each["id"] for each in server.all_of("/api/v1/dead-letters") if each["key"] == key]
    status, answer = server.post(
        "/api/v1/dead-letters/redrive",
        {
            "application": APPLICATION,
            "ids": [found],
            "patch": [{"op": "replace", "path": "/value", "value": "x"}],
            "reason": "upgraded",
        },
    )
    assert status == HTTPStatus.ACCEPTED, answer

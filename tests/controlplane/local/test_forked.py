"""Processes that are forked from one that has imported what they share."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from arrester.controlplane.embedded import process
from arrester.controlplane.local import forked
from arrester.controlplane.local.forked import Forked
from tests.patience import PATIENCE_SECONDS

#: Writes what it was started with; then sleeps, or exits with the code of its argument.
MODULE = """
import os, sys, time
print(__name__, sys.argv[1:], os.getcwd(), os.environ["ARRESTER_HOME"], flush=True)
print("arrester.controlplane.tasks" in sys.modules, file=sys.stderr, flush=True)
time.sleep(float(sys.argv[1]))
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Forked]]:
    (tmp_path / "forked_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    started: list[Forked] = []

    def start(*arguments: str) -> Forked:
        made = forked.start(
            ["forked_module", *arguments],
            log=tmp_path / "sleeper.log",
            env=os.environ | {"ARRESTER_HOME": "/the/home"},
            folder=tmp_path,
        )
        started.append(made)
        return made

    yield start
    for each in started:
        process.stop(each, signal.SIGKILL, seconds=PATIENCE_SECONDS)


def wait_until_it_runs(tmp_path: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "True" not in (tmp_path / "sleeper.log").read_text() and time.monotonic() < deadline:
        time.sleep(0.02)


def test_a_forked_process_has_its_arguments_folder_log_and_name(
    start: Callable[..., Forked], tmp_path: Path
) -> None:
    own = dict(os.environ)
    (tmp_path / "sleeper.log").write_text("first\n")
    running = start("30", "0")
    wait_until_it_runs(tmp_path)
    assert psutil.Process(running.pid).name() == "sleeper"
    assert os.getpgid(running.pid) == running.pid
    assert (tmp_path / "sleeper.log").read_text() == (
        f"first\n__main__ ['30', '0'] {tmp_path} /the/home\nTrue\n"
    )
    assert dict(os.environ) == own
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(0.01)
    assert running.poll() is None


def test_the_exit_code_of_a_forked_process_is_that_of_its_module_or_signal(
    start: Callable[..., Forked], tmp_path: Path
) -> None:
    assert start("0", "3").wait(PATIENCE_SECONDS) == 3
    (tmp_path / "sleeper.log").unlink()
    killed = start("30", "0")
    wait_until_it_runs(tmp_path)
    killed.send_signal(signal.SIGTERM)
    assert killed.wait(PATIENCE_SECONDS) == -signal.SIGTERM
    killed.send_signal(signal.SIGTERM)


def test_forked_processes_end_with_the_one_that_forks_and_start_again(
    start: Callable[..., Forked], tmp_path: Path
) -> None:
    first = start("30", "0")
    wait_until_it_runs(tmp_path)
    forking = psutil.Process(first.pid).parent()
    assert forking is not None
    child = psutil.Process(first.pid)
    forking.kill()
    assert first.wait(PATIENCE_SECONDS) == 255
    child.wait(PATIENCE_SECONDS)
    assert start("0", "0").wait(PATIENCE_SECONDS) == 0

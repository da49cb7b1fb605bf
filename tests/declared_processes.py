"""Processes that a file of a deployment declares, run as plain processes of this machine.

Their working directory has what that of the image has.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests import images
from tests.patience import PATIENCE_SECONDS


@contextmanager
def started(
    command: Sequence[str], environment: Mapping[str, str], log: Path, *, port: int = 8000
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a declared command in its environment, with `port` instead of 8000."""
    words = [str(port) if word == "8000" else word for word in command]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            words,
            cwd=images.working_directory("server"),
            env=environment,
            stdout=output,
            stderr=output,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when `condition` holds; fail if the process exits before."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert process.poll() is None, f"exited with {process.returncode}: {log.read_text()}"
        assert time.monotonic() < deadline, f"not up in {PATIENCE_SECONDS} s: {log.read_text()}"
        time.sleep(0.2)

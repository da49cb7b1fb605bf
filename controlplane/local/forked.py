"""Start Python modules as forks of one process that has imported what they share.

Each process then has its own memory only for what it imports or changes afterwards.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from arrester.controlplane.embedded import process

PRELOADED = "arrester.controlplane.management.preloaded"
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([PRELOADED])


@dataclass(frozen=True, slots=True)
class Forked:
    """A process with the methods of `subprocess.Popen` that a supervisor needs."""

    _process: ForkServerProcess

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return code


def start(
    command: Sequence[str | Path], *, log: Path, env: Mapping[str, str], folder: Path
) -> Forked:
    """Run a module with its arguments as `python -m` does; its process is named after its log.

    All calls have the same environment: that of the process that imports.
    """
    log.open("ab").close()
    words = [str(word) for word in command]
    started = _CONTEXT.Process(target=_run, args=(words, str(log), str(folder)), name=log.stem)
    with _environment(env):
        try:
            started.start()
        except EOFError as error:
            raise OSError(f"the process that forks {log.stem} ended") from error
    return Forked(started)


@contextmanager
def _environment(env: Mapping[str, str]) -> Iterator[None]:
    """Have this environment while the block runs: the process that forks inherits it."""
    own = dict(os.environ)
    os.environ.clear()
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(own)


def _run(command: list[str], log: str, folder: str) -> None:
    os.setsid()
    process.end_with_parent(signal.SIGTERM)()
    process.set_name(Path(log).stem)
    with open(log, "ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.chdir(folder)
    sys.argv = command
    # That of `up`, which `multiprocessing` may have imported.
    sys.modules.pop(f"{command[0]}.__main__", None)
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)

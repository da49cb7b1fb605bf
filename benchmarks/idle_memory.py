"""Memory of `arrester up --no-demo` without work, with shares of common pages (PSS)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.table import Figure
from tests.ports import free_port
from tests.services import REPOSITORY

#: Set for the measurements, not for a user's server.
_SETTINGS = ("DATABASE_URL", "MIGRATE_DATABASE_URL", "REDIS_URL", "ARRESTER_SECRET_KEY")


def figures(*, idle_seconds: float) -> list[Figure]:
    """Start a server with a new data folder; measure after it was idle for a time."""
    with tempfile.TemporaryDirectory(prefix="arrester-bench-", dir="/tmp") as folder:
        Path(folder).chmod(0o711)
        inherited = {name: value for name, value in os.environ.items() if name not in _SETTINGS}
        started = subprocess.Popen(
            [sys.executable, REPOSITORY / "manage.py", "up", "--no-demo"],
            env=inherited | {"ARRESTER_HOME": f"{folder}/home", "ARRESTER_PORT": str(free_port())},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert started.stdout is not None
            if not any("initial passwords" in line for line in started.stdout):
                raise RuntimeError("`arrester up` ended")
            time.sleep(idle_seconds)
            sizes = _sizes(psutil.Process(started.pid))
        finally:
            started.terminate()
            started.communicate()
    rows = [Figure(name=name, value=size) for name, size in sizes.items()]
    return [*rows, Figure(name="all processes, MB", value=sum(sizes.values()), goal="≤ 400")]


def _sizes(up: psutil.Process) -> dict[str, float]:
    """Return the megabytes of each process, those of the same name together."""
    sizes: dict[str, float] = {}
    for each in [up, *up.children(recursive=True)]:
        name = "up" if each == up else each.name()
        sizes[name] = sizes.get(name, 0.0) + each.memory_full_info().pss / (1 << 20)
    return sizes

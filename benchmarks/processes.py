"""Time child processes that prepare, begin together, and work until the last one has ended."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence


def timed(*children: Sequence[str]) -> float:
    """Run `python -m benchmarks.measured_process` with each list of arguments; return the
    seconds of work."""
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.measured_process", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for arguments in children
    ]
    try:
        for child in running:
            _expect(child, "ready")
        begin = time.perf_counter()
        for child in running:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        for child in running:
            _expect(child, "done")
        return time.perf_counter() - begin
    finally:
        for child in running:
            child.communicate(timeout=60)


def _expect(child: subprocess.Popen[str], word: str) -> None:
    assert child.stdout is not None
    if (line := child.stdout.readline()) != f"{word}\n":
        raise RuntimeError(f"a child process wrote {line!r} instead of {word!r}")

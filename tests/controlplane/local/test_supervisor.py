"""Children of `manage.py up`: restarted with growing pauses, at rest when they meant to end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from arrester.controlplane.local.supervisor import LONGEST_WAIT_SECONDS, Child, Supervisor


class Latch:
    """Stands for the application: open, or shut down until somebody opens it."""

    def __init__(self) -> None:
        self.open = True

    def is_open(self) -> bool:
        return self.open


@pytest.fixture
def children() -> Iterator[list[Child]]:
    made: list[Child] = []
    yield made
    for child in made:
        child.stop()


@pytest.fixture
def child(children: list[Child], tmp_path: Path) -> Callable[..., Child]:
    def make(code: str, latch: Latch | None = None, name: str = "demo") -> Child:
        made = Child(
            name=name,
            command=[sys.executable, "-c", code],
            env=dict(os.environ),
            log=tmp_path / f"{name}.log",
            folder=tmp_path,
            stop_seconds=4,
            final_codes=frozenset({0}),
            should_run=(latch or Latch()).is_open,
        )
        children.append(made)
        return made

    return make


def ended(child: Child) -> None:
    assert child.pid is not None
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


def test_a_child_that_dies_starts_again_after_growing_pauses(child: Callable[..., Child]) -> None:
    made = child("import sys; sys.exit('no table x')")
    now, pauses = 0.0, []
    for _ in range(8):
        assert made.look(now=now) == "demo starts"
        ended(made)
        news = made.look(now=now) or ""
        assert "demo ended with code 1 (no table x)" in news
        pauses.append(float(news.partition("again in ")[2].partition(" s")[0]))
        assert made.look(now=now + pauses[-1] - 0.1) is None
        now += pauses[-1]
    assert pauses == [1, 2, 4, 8, 16, 30, 30, LONGEST_WAIT_SECONDS]


def test_a_child_that_was_healthy_for_long_starts_again_soon(child: Callable[..., Child]) -> None:
    made = child("import sys; sys.exit(3)")
    now = 0.0
    for _ in range(4):
        made.look(now=now)
        ended(made)
        made.look(now=now)
        now += 100
    made.look(now=now)
    ended(made)
    assert "again in 1 s" in (made.look(now=now + 61) or "")


def test_an_end_that_was_meant_lasts_until_the_application_is_opened_again(
    child: Callable[..., Child],
) -> None:
    latch = Latch()
    made = child("pass", latch)
    made.look(now=0)
    ended(made)
    assert made.look(now=1) == "demo has ended as it was told to"
    assert made.look(now=500) is None
    latch.open = False
    assert made.look(now=501) is None
    latch.open = True
    assert made.look(now=502) == "demo starts"


def test_an_application_opened_before_its_process_has_gone_starts_again(
    child: Callable[..., Child], tmp_path: Path
) -> None:
    latch = Latch()
    end = tmp_path / "end"
    made = child(
        f"import os, time\nwhile not os.path.exists({str(end)!r}): time.sleep(0.01)", latch
    )
    made.look(now=0)
    latch.open = False
    assert made.look(now=1) is None
    latch.open = True
    assert made.look(now=2) is None
    end.touch()
    ended(made)
    assert made.look(now=3) == "demo has ended as it was told to"
    assert made.look(now=4) == "demo starts"


def test_a_latched_application_is_not_started(child: Callable[..., Child]) -> None:
    latch = Latch()
    latch.open = False
    made = child("pass", latch)
    assert made.look(now=0) is None
    assert made.pid is None


def test_stopping_ends_the_last_one_first_and_the_deaf_too(child: Callable[..., Child]) -> None:
    lines: list[str] = []
    deaf = (
        "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (3, 15)]; time.sleep(60)"
    )
    first, last = child("import time; time.sleep(60)", name="web"), child(deaf, name="demo")
    supervisor = Supervisor(children=[first, last], say=lines.append)
    supervisor.look()
    supervisor.stop()
    assert lines == ["web starts", "demo starts", "stopping demo", "stopping web"]
    assert (first.pid, last.pid) == (None, None)

"""Children of `arrester up`: restarts with growing delays, and exits on request."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from errno import ENOSPC
from pathlib import Path
from types import SimpleNamespace

import pytest

from arrester.controlplane.embedded import EmbeddedError
from arrester.controlplane.local import supervisor
from arrester.controlplane.local.supervisor import (
    MAXIMUM_DELAY_SECONDS,
    Child,
    SupervisedServer,
    Supervisor,
)


class Application:
    """A fake application: open, or shut down until it is opened."""

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
    def make(code: str, application: Application | None = None, name: str = "demo") -> Child:
        made = Child(
            name=name,
            command=[sys.executable, "-c", code],
            env=dict(os.environ),
            log=tmp_path / f"{name}.log",
            folder=tmp_path,
            stop_seconds=4,
            final_codes=frozenset({0}),
            should_run=(application or Application()).is_open,
        )
        children.append(made)
        return made

    return make


def wait_for_exit(child: Child) -> None:
    assert child.pid is not None
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


def test_a_child_that_exits_is_restarted_after_growing_delays(child: Callable[..., Child]) -> None:
    made = child("import sys; sys.exit('no table x')")
    now, delays = 0.0, []
    for _ in range(8):
        assert made.check(now=now) == "started demo"
        wait_for_exit(made)
        change = made.check(now=now) or ""
        assert "demo exited with code 1 (no table x)" in change
        delays.append(float(change.partition("restart in ")[2].partition(" s")[0]))
        assert made.check(now=now + delays[-1] - 0.1) is None
        now += delays[-1]
    assert delays == [1, 2, 4, 8, 16, 30, 30, MAXIMUM_DELAY_SECONDS]


def test_a_healthy_period_resets_the_restart_delay(child: Callable[..., Child]) -> None:
    made = child("import sys; sys.exit(3)")
    now = 0.0
    for _ in range(4):
        made.check(now=now)
        wait_for_exit(made)
        made.check(now=now)
        now += 100
    made.check(now=now)
    wait_for_exit(made)
    assert "restart in 1 s" in (made.check(now=now + 61) or "")


def test_a_child_that_stopped_on_request_starts_when_the_application_is_opened(
    child: Callable[..., Child],
) -> None:
    application = Application()
    made = child("pass", application)
    made.check(now=0)
    wait_for_exit(made)
    assert made.check(now=1) == "demo stopped on request"
    assert made.check(now=500) is None
    application.open = False
    assert made.check(now=501) is None
    application.open = True
    assert made.check(now=502) == "started demo"


def test_an_application_opened_before_its_process_has_exited_is_restarted(
    child: Callable[..., Child], tmp_path: Path
) -> None:
    application = Application()
    end = tmp_path / "end"
    made = child(
        f"import os, time\nwhile not os.path.exists({str(end)!r}): time.sleep(0.01)", application
    )
    made.check(now=0)
    application.open = False
    assert made.check(now=1) is None
    application.open = True
    assert made.check(now=2) is None
    end.touch()
    wait_for_exit(made)
    assert made.check(now=3) == "demo stopped on request"
    assert made.check(now=4) == "started demo"


def test_a_latched_application_is_not_started(child: Callable[..., Child]) -> None:
    application = Application()
    application.open = False
    made = child("pass", application)
    assert made.check(now=0) is None
    assert made.pid is None


def test_children_stop_in_reverse_order_even_if_they_ignore_signals(
    child: Callable[..., Child],
) -> None:
    lines: list[str] = []
    ignores_signals = (
        "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (3, 15)]; time.sleep(60)"
    )
    first, last = (
        child("import time; time.sleep(60)", name="web"),
        child(ignores_signals, name="demo"),
    )
    supervisor = Supervisor(children=[first, last], report=lines.append)
    supervisor.check()
    supervisor.stop()
    assert lines == ["started web", "started demo", "stopping demo", "stopping web"]
    assert (first.pid, last.pid) == (None, None)


class BrokenServer:
    """A fake server that cannot start until its cause is repaired."""

    name = "Redis"
    log = Path("redis.log")

    def __init__(self, error: Exception) -> None:
        self.error: Exception | None = error
        self.running = False
        self.starts = 0

    def alive(self) -> bool:
        return self.running

    def start(self) -> None:
        self.starts += 1
        if self.error is not None:
            raise self.error
        self.running = True

    def stop(self) -> None:
        self.running = False


@pytest.mark.parametrize(
    "error", [EmbeddedError("Redis did not start"), OSError(ENOSPC, "No space left on device")]
)
def test_a_server_that_cannot_start_is_tried_again_and_then_its_clients_at_once(
    child: Callable[..., Child], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    server, lines = BrokenServer(error), list[str]()
    now = [1000.0]
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: now[0]))
    made = child("import sys; sys.exit(1)")
    both = Supervisor(
        servers=[SupervisedServer(server=server)], children=[made], report=lines.append
    )
    for _ in range(6):  # the delays are 1, 2, 4, 8, 16 and 30 s
        both.check()
        wait_for_exit(made)
        both.check()
        now[0] += MAXIMUM_DELAY_SECONDS
    assert server.starts == 6
    assert lines[0] == "Redis exited; restarting it (log: redis.log)"
    assert lines[1].endswith("; next attempt in 1 s")
    both.check()
    wait_for_exit(made)
    both.check()
    assert made.pid is None
    server.error = None
    now[0] += MAXIMUM_DELAY_SECONDS - 0.5  # for the server, which waits since the last check
    lines.clear()
    both.check()
    now[0] += 0.5
    both.check()
    assert "Redis answers again" in lines
    assert made.pid is not None


def test_a_child_whose_log_cannot_be_written_is_started_later(
    child: Callable[..., Child], tmp_path: Path
) -> None:
    made = child("import time; time.sleep(100)")
    made.log.mkdir()
    assert "demo cannot start ([Errno 21]" in str(made.check(now=0.0))
    assert made.check(now=0.5) is None
    made.log.rmdir()
    assert made.check(now=1.0) == "started demo"

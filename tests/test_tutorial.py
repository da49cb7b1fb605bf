"""The commands of the tutorial for a second terminal, literally, with no other variables set."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.services import REPOSITORY
from tests.test_wheel import WAIT_FOR_PAUSE

PAGE = (REPOSITORY / "docs/tutorial/first-pipeline.md").read_text()
#: What the shell of a new user has.
BARE = ("env", "-i", f"HOME={Path.home()}", "PATH=/usr/local/bin:/usr/bin:/bin", "bash", "-euc")


def commands(*containing: str) -> str:
    """Return the block of commands that contains these texts."""
    blocks = re.findall(r"(?:^    .*\n)+", PAGE, re.MULTILINE)
    [found] = [each for each in blocks if all(text in each for text in containing)]
    return re.sub(r"^    ", "", str(found), flags=re.MULTILINE)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize(
    "before",
    [
        pytest.param("", id="not activated"),
        pytest.param(". .venv/bin/activate\n", id="activated"),
    ],
)
def test_the_second_terminal_of_the_tutorial(before: str, tmp_path: Path) -> None:
    """As in a clone: its `.venv` is there after `make up`. The server is tested elsewhere."""
    for each in REPOSITORY.iterdir():
        if each.name not in ("first.py", ".git"):
            (tmp_path / each.name).symlink_to(each)
    [script] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    script = script.replace("/tmp/first", str(tmp_path / "first"))
    script = script.replace('"rowsPerSecond", 5', '"rowsPerSecond", 200')
    assert script.count("200") == 1
    skipped = """
    [task] = agent.paused_tasks()
    assert agent.skip(task, reason="a typo")
    while any(task.held for task in agent.tasks()):
        time.sleep(0.1)
    """
    first = script.replace("agent.await_termination()", WAIT_FOR_PAUSE + skipped)
    (tmp_path / "first.py").write_text(first)
    in_terminal = commands("first.py", "PYSPARK_PYTHON")
    # Without a server.
    in_terminal = re.sub(
        r"^export (REDIS_URL|ARRESTER_SERVER_KEY)=.*\n", "", in_terminal, flags=re.M
    )
    spool = f"export ARRESTER_SPOOL={tmp_path}/spool\n"

    def typed(text: str) -> str:
        done = subprocess.run(
            [*BARE, before + spool + text], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Traceback" not in done.stderr and " lacks " not in done.stderr
        return done.stdout

    assert "paused: [('shop-1', 100)]" in typed(in_terminal)

    # The second run continues, and record 100 does not come again.
    again = script.replace("agent.await_termination()", "agent.await_termination(5)")
    (tmp_path / "first.py").write_text(again.replace("raise ValueError", "raise SystemExit"))
    typed(in_terminal)
    seen = commands("describe()").replace("/tmp/first", str(tmp_path / "first"))
    words = [line.split() for line in typed(seen).splitlines()]
    described = dict(each for each in words if len(each) == 2)
    assert float(described["min"]) == 0
    # All records but one.
    assert float(described["count"]) == float(described["max"])
    assert list((tmp_path / "first/dead-letters").glob("day=*/*/_SUCCESS"))

"""With Spark's default log level, an expected abort and a normal end print no errors of Spark.

A driver process runs the scenes. Its log is read scene by scene. Late lines of killed tasks may be
in a later scene, so that the expected lines are the same for all of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.agents.log_driver import BEGIN, SCENES
from tests.services import REPOSITORY

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

Lines = list[tuple[str, str]]

#: Spark warns when any query starts.
START = {("WARN", "ResolveWriteToStream"): 1}
#: When a query stops between two jobs, Spark's scheduler finds no job to cancel. It warns of that
#: in a thread of its own: once or twice, and sometimes only in the next scene.
_NOTHING_TO_CANCEL = re.compile(r"^.* WARN DAGScheduler: Failed to cancel job group .*$", re.M)
_LINE = re.compile(r"\d\d:\d\d:\d\d (WARN|ERROR|FATAL) (\S+): ")
_OURS = re.compile(r"ours (\w+) (.*)")
SKIPPED = "lines: 1 failed record of 1 task skipped"
NO_SERVER = "REDIS_URL is not set: no server shows this instance"
REPEATED = "a record failed on the fast path; repeating it on the slow path"
STOPS = ("INFO", "tests: this instance stops: the block ended")


@pytest.fixture(scope="module")
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what a driver prints to stderr, by scene: those of the selected tests."""
    folder = tmp_path_factory.mktemp("driver")
    selected = {
        item.callspec.params["scene"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.agents.log_driver", str(folder)]
        + [name for name in SCENES if name in selected],
        cwd=REPOSITORY,
        env={**os.environ, "ARRESTER_SPOOL": str(folder / "spool"), "REDIS_URL": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    _, *parts = re.split(rf"^.*?{BEGIN}", done.stderr, flags=re.MULTILINE)
    return dict(part.split("\n", 1) for part in parts)


def in_scenes(*names: str, long: Sequence[str] = ()) -> pytest.MarkDecorator:
    """Run a test with the logs of these scenes; of `long` in `make test-long`."""
    rare = [pytest.param(name, marks=pytest.mark.long) for name in long]
    return pytest.mark.parametrize("scene", [*names, *rare])


def of_spark(text: str) -> dict[tuple[str, str], int]:
    """Count Spark's warnings and errors by level and logger, without `_NOTHING_TO_CANCEL`."""
    lines = _LINE.findall(_NOTHING_TO_CANCEL.sub("", text))
    return dict(Counter((level, logger) for level, logger in lines))


def ours(text: str) -> Lines:
    """Return our own lines with their levels, without the causes of skipped records."""
    lines = [
        (level, line.partition(", most of them at ")[0]) for level, line in _OURS.findall(text)
    ]
    return [(level, line) for level, line in lines if NO_SERVER not in line]


@in_scenes(long=["healthy"])
def test_a_healthy_run_prints_neither_warnings_nor_errors(log: dict[str, str], scene: str) -> None:
    assert of_spark(log[scene]) == START
    assert ours(log[scene]) == [STOPS]


@in_scenes(
    "native step, file sink",
    long=["native step, foreachBatch", "python step, file sink", "python step, foreachBatch"],
)
def test_a_failed_record_prints_our_lines_only(log: dict[str, str], scene: str) -> None:
    """Nor does the healthy micro-batch before it."""
    assert of_spark(log[scene]) == START
    assert log[scene].count(NO_SERVER) == 1
    # A sink that stages its rows repeats nothing.
    is_repeated = scene != "native step, file sink"
    repeated = [("INFO", f"pipeline 'lines', batch 1: {REPEATED}")]
    assert ours(log[scene]) == [*(repeated if is_repeated else []), ("WARNING", SKIPPED), STOPS]


@in_scenes("other tasks killed", long=["data source v2"])
def test_no_form_of_an_aborted_write_prints_lines_of_spark(log: dict[str, str], scene: str) -> None:
    assert of_spark(log[scene]) == START
    assert ours(log[scene]) == [
        ("INFO", f"pipeline 'lines', batch 0: {REPEATED}"),
        ("WARNING", SKIPPED),
        STOPS,
    ]


@in_scenes("pause")
def test_a_pause_and_a_resume_print_our_lines_only(log: dict[str, str], scene: str) -> None:
    assert of_spark(log[scene]) == START
    assert [level for level, _ in ours(log[scene])] == ["INFO", "WARNING"]
    assert of_spark(log["resume"]) == {}
    resumed = "pipeline 'lines', task 'a': resume by the script: resumed from position 101"
    assert ours(log["resume"]) == [("WARNING", resumed), STOPS]


@in_scenes(long=["restart"])
def test_a_restart_of_the_query_is_no_error(log: dict[str, str], scene: str) -> None:
    assert of_spark(log[scene]) == {key: 2 * n for key, n in START.items()}
    assert [level for level, _ in ours(log[scene])] == ["INFO", "WARNING", "INFO"]


@in_scenes("shutdown in a write", long=["shutdown in a micro-batch"])
def test_a_shutdown_is_no_error(log: dict[str, str], scene: str) -> None:
    assert of_spark(log[scene]) == START
    assert {level for level, _ in ours(log[scene])} <= {"INFO", "WARNING"}


@in_scenes(long=["superseded"])
def test_a_superseded_run_ends_with_one_warning(log: dict[str, str], scene: str) -> None:
    assert of_spark(log[scene]) == START
    assert [level for level, _ in ours(log[scene])] == ["WARNING", "INFO", "INFO"]


@in_scenes(long=["availableNow"])
def test_the_end_of_an_available_now_run_is_no_error(log: dict[str, str], scene: str) -> None:
    assert of_spark(log[scene]) == START
    assert [level for level, _ in ours(log[scene])] == ["INFO", "INFO"]


@in_scenes("broken sink")
def test_errors_of_an_authors_own_write_are_printed(log: dict[str, str], scene: str) -> None:
    loggers = {logger for level, logger in of_spark(log[scene]) if level == "ERROR"}
    # Spark 3.5 has no line of `Utils`.
    assert loggers | {"Utils"} == {
        "Executor",
        "FileFormatWriter",
        "MicroBatchExecution",
        "TaskSetManager",
        "Utils",
    }
    assert "the sink is broken" in log[scene]
    assert "ERROR" in {level for level, _ in ours(log[scene])}

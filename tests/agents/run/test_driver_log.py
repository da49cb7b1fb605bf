"""With Spark's default log level, an expected abort and a normal end print no errors of Spark.

A driver process runs all scenes. Its log is read scene by scene. Late lines of killed tasks may be
in a later scene, so that the expected lines are the same for all of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from tests.agents.log_driver import BEGIN
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
SKIPPED = "lines: 1 failed records of 1 tasks are skipped"
NO_SERVER = "REDIS_URL is not set: no server shows this instance"
REPEATED = "a record failed on the fast path; repeating it on the slow path"
STOPS = ("INFO", "tests: this instance stops: the block ended")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what a driver prints to stderr, by scene."""
    folder = tmp_path_factory.mktemp("driver")
    done = subprocess.run(
        [sys.executable, "-m", "tests.agents.log_driver", str(folder)],
        cwd=REPOSITORY,
        env={**os.environ, "ARRESTER_SPOOL": str(folder / "spool"), "REDIS_URL": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    _, *parts = re.split(rf"^.*?{BEGIN}", done.stderr, flags=re.MULTILINE)
    return dict(part.split("\n", 1) for part in parts)


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


def test_a_healthy_run_prints_neither_warnings_nor_errors(log: dict[str, str]) -> None:
    assert of_spark(log["healthy"]) == START
    assert ours(log["healthy"]) == [STOPS]
    assert log["healthy"].count(NO_SERVER) == 1


@pytest.mark.parametrize("step", ["native step", "python step"])
@pytest.mark.parametrize("sink", ["file sink", "foreachBatch"])
def test_a_failed_record_prints_our_lines_only(log: dict[str, str], step: str, sink: str) -> None:
    text = log[f"{step}, {sink}"]
    assert of_spark(text) == START
    assert ours(text) == [
        ("INFO", f"pipeline 'lines', batch 1: {REPEATED}"),
        ("WARNING", SKIPPED),
        STOPS,
    ]


@pytest.mark.parametrize("scene", ["data source v2", "other tasks killed"])
def test_no_form_of_an_aborted_write_prints_lines_of_spark(log: dict[str, str], scene: str) -> None:
    assert of_spark(log[scene]) == START
    assert ours(log[scene]) == [
        ("INFO", f"pipeline 'lines', batch 0: {REPEATED}"),
        ("WARNING", SKIPPED),
        STOPS,
    ]


def test_a_pause_and_a_resume_print_our_lines_only(log: dict[str, str]) -> None:
    assert of_spark(log["pause"]) == START
    assert [level for level, _ in ours(log["pause"])] == ["INFO", "WARNING"]
    assert of_spark(log["resume"]) == {}
    assert ours(log["resume"]) == [STOPS]


def test_a_restart_of_the_query_is_no_error(log: dict[str, str]) -> None:
    assert of_spark(log["restart"]) == {key: 2 * n for key, n in START.items()}
    assert [level for level, _ in ours(log["restart"])] == ["INFO", "WARNING", "INFO"]


@pytest.mark.parametrize("scene", ["shutdown in a micro-batch", "shutdown in a write"])
def test_a_shutdown_is_no_error(log: dict[str, str], scene: str) -> None:
    assert of_spark(log[scene]) == START
    assert {level for level, _ in ours(log[scene])} <= {"INFO", "WARNING"}


def test_a_superseded_run_ends_with_one_warning(log: dict[str, str]) -> None:
    assert of_spark(log["superseded"]) == START
    assert [level for level, _ in ours(log["superseded"])] == ["WARNING", "INFO", "INFO"]


def test_the_end_of_an_available_now_run_is_no_error(log: dict[str, str]) -> None:
    assert of_spark(log["availableNow"]) == START
    assert [level for level, _ in ours(log["availableNow"])] == ["INFO", "INFO"]


def test_errors_of_an_authors_own_write_are_printed(log: dict[str, str]) -> None:
    loggers = {logger for level, logger in of_spark(log["broken sink"]) if level == "ERROR"}
    # Spark 3.5 has no line of `Utils`.
    assert loggers | {"Utils"} == {
        "Executor",
        "FileFormatWriter",
        "MicroBatchExecution",
        "TaskSetManager",
        "Utils",
    }
    assert "the sink is broken" in log["broken sink"]
    assert "ERROR" in {level for level, _ in ours(log["broken sink"])}

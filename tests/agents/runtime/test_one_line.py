"""A clean Ctrl-C and a refused start print one line; an author's own exception is never hidden."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from arrester.agents.runtime.end.one_line import end_in_one_line, interrupted
from arrester.controlplane import signing
from arrester.domain.errors import StartRefused
from arrester.domain.identity import redis_keys
from arrester.domain.state.states import ApplicationStatus
from tests.agents.redis_server import Server
from tests.services import REPOSITORY

SPARK_SUBMIT = Path(sys.executable).with_name("spark-submit")
STOPPED = "flights: stopped by Ctrl-C (SIGINT)"
DRIVER = """
    import os, sys, threading, time
    from pyspark.sql import SparkSession
    from arrester import Agent

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = spark.getOrCreate()
    agent = Agent(spark, application="flights")

    busy = sys.argv[1] + "/busy"

    def slow(row):
        open(busy, "w").close()
        time.sleep(300)
        return row

    def ready():
        # Spark prints the traceback of a worker that SIGINT ends while it starts.
        while not os.path.exists(busy):
            time.sleep(0.1)
        print("ready", flush=True)

    source = {source}
    pipeline = agent.pipeline("delays", source, position="{position}").process("slow", slow)
    pipeline = pipeline.write_files(sys.argv[1] + "/out", number_column="batch")
    threading.Thread(target=ready, daemon=True).start()
"""
STREAM = DRIVER.format(source='spark.readStream.format("rate").load()', position="value")
STATIC = DRIVER.format(source="spark.range(5)", position="id")
IN_A_BLOCK = """
    with agent:
        pipeline.{method}(sys.argv[1] + "/checkpoint")
        agent.await_termination()
"""
WITHOUT_A_BLOCK = """
    pipeline.start(sys.argv[1] + "/checkpoint")
    agent.await_termination()
"""
LATCHED = """
    import sys
    from pathlib import Path
    from tests.agents.runtime.test_runtime import alone

    alone(Path(sys.argv[1]), REDIS_URL=sys.argv[2]).open()
"""
OWN_EXCEPTIONS = {
    "raise ValueError('no such table')": "ValueError: no such table",
    # Ctrl-C while the author handles an exception.
    """
try:
    raise ValueError('no such table')
except ValueError:
    exc = KeyboardInterrupt()
    try:
        raise exc
    finally:
        interrupted(exc, 'flights')
""": "ValueError: no such table",
}


def script(code: str) -> str:
    return textwrap.dedent(code)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("command", "code"),
    [
        pytest.param(
            [sys.executable],
            STREAM + IN_A_BLOCK.format(method="start"),
            id="block",
            marks=pytest.mark.long,
        ),
        pytest.param(
            [sys.executable],
            STATIC + IN_A_BLOCK.format(method="run"),
            id="run",
            marks=pytest.mark.long,
        ),
        pytest.param([sys.executable], STREAM + WITHOUT_A_BLOCK, id="no block"),
        pytest.param(
            [str(SPARK_SUBMIT)],
            STREAM + IN_A_BLOCK.format(method="start"),
            id="spark-submit",
            marks=pytest.mark.long,
        ),
    ],
)
def test_ctrl_c_prints_one_line(command: Sequence[str], code: str, tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(script(code))
    variables = {
        "ARRESTER_SPOOL": str(tmp_path / "spool"),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(REPOSITORY),
        "REDIS_URL": "",
    }
    process = subprocess.Popen(
        [*command, str(file), str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        while (line := process.stdout.readline()) != "ready\n":
            assert line or process.poll() is None
        # A terminal sends it to all processes of the group.
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode != 0
    assert "Traceback" not in errors
    assert [each for each in errors.splitlines() if "KeyboardInterrupt" in each] == []
    # SIGINT ends the JVM of spark-submit, too, which passes on what the script prints until then.
    assert errors.splitlines().count(STOPPED) == 1 or command == [str(SPARK_SUBMIT)]


def test_a_refused_start_prints_one_line_with_who_shut_the_application_down(
    redis_server: Server, tmp_path: Path
) -> None:
    by = "ana (the sink\nis full)"
    state = signing.sign_state("flights", ApplicationStatus.LATCHED, at=datetime.now(UTC), by=by)
    redis_server.client.set(redis_keys.state("flights"), "LATCHED")
    redis_server.client.set(redis_keys.signed_state("flights"), state)
    done = subprocess.run(
        [sys.executable, "-c", script(LATCHED), str(tmp_path), redis_server.url],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    refused = "flights is LATCHED: it was shut down by ana (the sink is full); start it from the"
    assert done.stderr.splitlines() == [
        f"the start is refused: {refused} dashboard, then run again"
    ]


@pytest.mark.parametrize(("code", "shown"), OWN_EXCEPTIONS.items(), ids=["own", "in a handler"])
def test_an_exception_of_the_author_is_never_hidden(code: str, shown: str) -> None:
    begin = """
from arrester.agents.runtime.end.one_line import end_in_one_line, interrupted
end_in_one_line(KeyboardInterrupt(), "another one")
"""
    done = subprocess.run(
        [sys.executable, "-c", begin + code], capture_output=True, text=True, check=False
    )
    assert "Traceback (most recent call last)" in done.stderr
    assert shown in done.stderr


def test_notebooks_show_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    refused = StartRefused("flights is LATCHED")
    end_in_one_line(refused, "the start is refused")
    assert refused._render_traceback_() == ["the start is refused"]  # type: ignore[attr-defined]  # of IPython
    exc = KeyboardInterrupt()
    interrupted(exc, "flights")
    assert exc._render_traceback_() == [STOPPED]  # type: ignore[attr-defined]  # of IPython
    other = ValueError("no such table")
    interrupted(other, "flights")
    assert not hasattr(other, "_render_traceback_")

"""The examples of the how-to run as they are written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis

from arrester.controlplane import embedded, queries
from arrester.domain.events import CommandKind
from tests.dashboard.accounts import token
from tests.dashboard.conftest import server
from tests.dashboard.story import NA, Story, started_with_accounts
from tests.services import REPOSITORY

__all__ = ["server"]
HOW_TO = REPOSITORY / "docs/how-to"
PAGE = (HOW_TO / "use-the-rest-api.md").read_text()


@pytest.fixture
def story(fresh_database: embedded.Urls, redis: Redis) -> Story:
    story = started_with_accounts()
    story.pauses("JFK")
    story.pauses("LGA", cause=NA)
    story.skips("EWR", 3)
    return story


def script(language: str, page: str = PAGE) -> str:
    return "\n".join(re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL))


def run(command: list[str], server: str, name: str, folder: Path) -> str:
    """Run a script with the URL of a server and the token of an account; return what it prints."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        env=os.environ | {"ARRESTER_URL": server, "ARRESTER_TOKEN": token(name)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("language", "command"), [("bash", ["bash", "-euo", "pipefail"]), ("python", [sys.executable])]
)
def test_the_examples_run(
    story: Story, server: str, tmp_path: Path, language: str, command: list[str]
) -> None:
    printed = run([*command, "-c", script(language)], server, "ana", tmp_path)
    events = [each.event.type for each in queries.feed(None, last=500).events]
    commands = [each.kind for each in queries.commands().rows]
    if language == "bash":
        assert (events.count("NoteAdded"), commands) == (1, [])
        assert "operationId: tasks_list" in (tmp_path / "arrester.yaml").read_text()
        return
    assert commands == [CommandKind.SKIP_RECORD] * 2
    for expected in (
        "delays RUNNING",
        "SKIP_RECORD ISSUED",
        "3 dead letters",
        "0 newer events",
        "400 invalid_value status one of RUNNING, PAUSED",
        "\n304\n",
    ):
        assert expected in printed, printed


def test_the_examples_of_sending_events_run(story: Story, server: str, tmp_path: Path) -> None:
    commands = script("bash", (HOW_TO / "send-events.md").read_text())
    assert commands.count("curl ") == 2
    # An answer of an error fails, too.
    commands = commands.replace("curl -X", "curl --fail-with-body -X")
    printed = run(["bash", "-euo", "pipefail", "-c", commands], server, "ada", tmp_path)
    assert '"key":"whsec_' in printed
    assert (tmp_path / "failures.parquet").read_bytes().endswith(b"PAR1")

"""The examples of docs/reference/cli.md run and have the output of the page.

`RECORD=1` writes the output into the page instead.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest
from django.db import connections

from arrester.cli import main
from arrester.cli.command_names import MODULES, SERVER_COMMANDS, is_for_rest
from arrester.controlplane import alerts, embedded
from tests import services
from tests.cli.answering_agent import answering
from tests.cli.conftest import Arrester
from tests.cli.examples import ADDRESS, PAGE, comparable, examples, recorded, transcript
from tests.dashboard.accounts import token
from tests.dashboard.story import NA, Story
from tests.services import REPOSITORY


@pytest.fixture
def first_ids(fresh_database: embedded.Urls) -> None:
    """Let ids begin at 1: earlier tests of this process may have used some."""
    connections.close_all()
    services.clone(fresh_database)


def test_each_example_has_the_output_of_the_page(
    first_ids: None,
    arrester: Arrester,
    story: Story,
    server: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    _build(story)
    # `export` writes a file.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKEN", os.environ["ARRESTER_TOKEN"])
    monkeypatch.setenv("ADMIN_TOKEN", token("ada"))
    # From `login` on, the profile has them.
    monkeypatch.delenv("ARRESTER_TOKEN")
    monkeypatch.delenv("ARRESTER_URL")

    def call(words: list[str]) -> str:
        words = [os.path.expandvars(word).replace(ADDRESS, server) for word in words]
        return transcript(arrester(*words), server)

    with answering(story):
        if "RECORD" in os.environ:
            PAGE.write_text(recorded(PAGE.read_text(), call))
            return
        for example in examples(PAGE.read_text(), server):
            assert comparable(call(example.words)) == comparable(example.expected), example.words


def _build(story: Story) -> None:
    # In each of the five minutes of a rate, at any second of the minute.
    for ago in range(6, 0, -1):
        story.flows(
            ago=ago,
            micro_batches=2,
            records_in=2_000,
            records_out=1_992,
            failed=8,
            durations={"total:35": 11, "total:42": 1} if ago == 1 else {},
            backlog=340,
            backlog_unit="records",
            last_batch_at=datetime.now(UTC),
        )
    story.skips("EWR", 40)
    for key in ("ATL", "DCA"):
        story.pauses(key, cause=NA)
    story.pauses("JFK", held=12)
    story.pauses("LGA")
    story.dies_alone("BOS")
    assert alerts.update(now=datetime.now(UTC))


def test_each_command_has_an_example() -> None:
    page = PAGE.read_text()
    missing = {name for name in MODULES if f"$ arrester {name}" not in page} - {"completion"}
    assert missing == set()
    assert "arrester completion bash" in page


def test_the_commands_of_the_server_are_those_of_django() -> None:
    folder = REPOSITORY / "controlplane" / "management" / "commands"
    ours = {path.stem for path in folder.glob("[!_]*.py")}
    assert set(SERVER_COMMANDS) == ours | {"migrate"}


def test_the_commands_in_all_pages_are_complete() -> None:
    """Those with the value of an option, and those of examples. One that ends with an option, such
    as `arrester edit --test`, names it."""
    found = [
        (path.name, words)
        for path in [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
        for words in commands_of(path.read_text())
        if is_for_rest(words)
    ]
    assert ("monitor-with-prometheus.md", "token") in {(name, words[0]) for name, words in found}
    assert {name: fault for name, words in found if (fault := usage_error(words))} == {}


def commands_of(page: str) -> Iterator[list[str]]:
    """Yield the words of the commands of a page."""
    inline = [
        each for each in re.findall(r"`arrester ([^`\n]+)`", page) if re.search(" -.* [^-]", each)
    ]
    lines = re.findall(r"^(?:    |\$ )?arrester (.+?)(?:  +#.*)?$", page, re.MULTILINE)
    for text in inline + lines:
        words = shlex.split(re.sub(r"\b(ID|NUMBER)\b", "1", text), comments=True)
        # What a reader fills in.
        yield ["2026-11-20" if word == "…" else word for word in words]


def usage_error(words: list[str]) -> str:
    """Return why a command is not valid, or nothing."""
    command: click.Command | None = main.arrester
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        command, words = command.get_command(click.Context(command), words[0]), words[1:]
    if command is None:
        return "there is no such command"
    if words in (["--help"], ["--version"]):
        return ""
    try:
        command.make_context(command.name, [*words])
    except click.UsageError as error:
        return error.format_message()
    return ""

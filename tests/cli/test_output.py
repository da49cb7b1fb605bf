"""Tables on a terminal and elsewhere."""

from __future__ import annotations

import re

import pytest

from arrester.cli import output
from arrester.cli.commands.doctor import FINDING_COLUMNS
from arrester.cli.commands.lists import TASK_COLUMNS
from tests.terminal import terminal

ADVICE = "Start a Celery worker for the queue arrester."
FINDING = {"level": "error", "check": "process worker", "value": "never seen", "advice": ADVICE}
MESSAGE = "departed 1301 minutes late: a typo, or a very long day"
TASK = {
    "application": "flights",
    "pipeline": "delays",
    "key": "JFK",
    "status": "PAUSED",
    "first_stopped_at": None,
    "status_changed_at": None,
    "position": 151_974,
    "held": 12,
    "failed": 1,
    "failure": {"exception_class": "checks.ImplausibleDelay", "message": MESSAGE},
}


def shown(
    monkeypatch: pytest.MonkeyPatch, rows: list[output.Row], columns: tuple[output.Column, ...]
) -> list[str]:
    """Return the lines of a table on a terminal of 80 columns."""
    with terminal(monkeypatch, columns=80) as written:
        output.print_table(rows, columns, empty="none")
        text = written()
    return re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()


def test_a_terminal_of_80_columns_shows_names_whole_and_texts_in_the_rest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = shown(monkeypatch, [TASK], TASK_COLUMNS)
    assert max(map(len, tasks)) <= 80
    assert tasks[1].startswith("flights/delays/JFK PAUSED")
    assert "151,974" in tasks[1] and "ImplausibleDe… departed 13…" in tasks[1]

    rest = {"level": "ok", "check": "postgres role", "value": "granted " * 9, "advice": ""}
    findings = shown(monkeypatch, [FINDING, rest], FINDING_COLUMNS)
    assert max(map(len, findings)) <= 80
    begin = findings[0].index("ADVICE")
    assert " ".join(line[begin:].strip() for line in findings[1:4]) == ADVICE

    capsys.readouterr()
    output.print_table([TASK], TASK_COLUMNS, empty="none")
    assert MESSAGE in capsys.readouterr().out

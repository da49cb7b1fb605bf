"""Log who did what: commands of operators, and calls of the script that do the same."""

from __future__ import annotations

import logging
from typing import Protocol

from arrester.agents.journal.ledger import CommandAnswer

_log = logging.getLogger("arrester.commands")


class _Act(Protocol):
    """What a command has."""

    @property
    def actor(self) -> str | None: ...

    @property
    def reason(self) -> str | None: ...


def log_answer(
    act: str, command: _Act, answer: CommandAnswer, *, pipeline: str | None, task: str | None = None
) -> None:
    """Log the answer to a command in one line.

    The level is that of the pause that it ends: by default, Python prints no INFO lines.
    """
    where = f"pipeline {pipeline!r}" if task is None else f"pipeline {pipeline!r}, task {task!r}"
    why = f" ({' '.join(command.reason.split())})" if command.reason else ""
    actor = command.actor or "the script"
    result = "" if answer.applied else "refused: "
    _log.warning("%s: %s by %s%s: %s%s", where, act, actor, why, result, answer.reason)

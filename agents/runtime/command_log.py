"""Log and trace who did what: commands of operators, and calls of the script that do the same."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Protocol
from uuid import UUID

from arrester.agents.journal.ledger import CommandAnswer
from arrester.domain.events import CommandIssued
from arrester.domain.python_versions import UTC
from arrester.domain.tracing.spans import apply_span, command_id
from arrester.domain.tracing.tracer import tracer_of

_log = logging.getLogger("arrester.commands")


class _Act(Protocol):
    """What a command has."""

    @property
    def command(self) -> UUID | None: ...

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
    line, values = "%s: %s by %s%s: %s%s", [where, act, actor, why, result, answer.reason]
    if command.command is None:
        _log.warning(line, *values)
    else:
        ids = {"command_id": str(command.command)}
        _log.warning(f"{line} (command %s)", *values, command.command, extra=ids)


def trace_answer(
    application: str,
    command: CommandIssued,
    answer: CommandAnswer,
    *,
    instance: UUID,
    began: datetime,
) -> None:
    """Record the span of a command that was applied or refused, if OpenTelemetry is on."""
    tracer = tracer_of(application)
    if tracer is not None:
        refused = None if answer.applied else answer.reason
        ended = datetime.now(UTC)
        tracer.record(
            [
                apply_span(
                    application,
                    command,
                    instance=instance,
                    began=began,
                    ended=ended,
                    refused=refused,
                )
            ]
        )


def log_fetched(application: str, command: CommandIssued) -> None:
    """Log a command that this instance has fetched, with its ids."""
    ids = {"command_id": str(command.command)}
    if tracer_of(application) is not None:
        ids["trace_id"] = command_id(application, command).trace_hex
    _log.info(
        "command %s %s by %s is fetched", command.kind, command.command, command.actor, extra=ids
    )

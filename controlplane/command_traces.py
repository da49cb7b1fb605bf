"""Log and trace commands: as they are issued, and as the answers of agents are folded."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from uuid import UUID

from django.db import DatabaseError

from arrester.controlplane.views import row_mapping
from arrester.domain.state.states import CommandState, TaskState
from arrester.domain.tracing import server_spans
from arrester.domain.tracing.tracer import SERVER, tracer_of
from arrester.domain.wire.failure_columns import Stored

log = logging.getLogger(__name__)


def folded(stored: Sequence[Stored], *, began: datetime) -> None:
    """Log the answers in a committed fold, and record its spans if OpenTelemetry is on."""
    tracer, commands = tracer_of(SERVER), {}
    if tracer is not None:
        with suppress(DatabaseError):
            commands = _load_commands(stored)
        ended = datetime.now(UTC)
        tracer.record(server_spans.fold_spans(stored, commands, began=began, ended=ended))
    _log_commands(stored, commands)


def acted(
    stored: Sequence[Stored],
    *,
    commands: Mapping[UUID, CommandState],
    tasks: Mapping[str, TaskState],
    began: datetime,
) -> None:
    """Log and record the commands that a committed act has issued or ended.

    `commands` are those after it, `tasks` those before it.
    """
    tracer = tracer_of(SERVER)
    if tracer is not None:
        ended = datetime.now(UTC)
        tracer.record(server_spans.command_spans(stored, commands, tasks, began=began, ended=ended))
    _log_commands(stored, {} if tracer is None else commands)


def _load_commands(stored: Sequence[Stored]) -> dict[UUID, CommandState]:
    """Return the commands that events are about."""
    ids = {data.command for _, data in server_spans.of_commands(stored)}
    if not ids:
        return {}
    loaded = row_mapping.COMMANDS.load("id = ANY(%s::uuid[])", [list(ids)])
    return {each.id: each for each in loaded}


def _log_commands(stored: Sequence[Stored], commands: Mapping[UUID, CommandState]) -> None:
    """Log one line for each event of a command, with the ids of both, and of the trace if known."""
    for each, data in server_spans.of_commands(stored):
        event = server_spans.event_name(each)
        ids = {"event_id": event, "command_id": str(data.command)}
        if data.command in commands:
            ids["trace_id"] = server_spans.command_id(commands[data.command]).trace_hex
        log.info("%s: %s of command %s", event, each.event.type, data.command, extra=ids)

"""Resume the tasks whose pause of limited duration is over."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings

from arrester.controlplane.actions.transaction import advance
from arrester.controlplane.views import projections, row_mapping
from arrester.domain.commands import timed_pauses
from arrester.domain.events import Event
from arrester.domain.state.stream_state import StreamState

#: The index of stopped tasks has those that no failure stopped.
_IN_TIMED_PAUSE = (
    "application = %s AND fingerprint IS NULL AND status <> 'RUNNING' AND status = 'PAUSED'"
    " AND position('\"timed_pause\":{' in state) > 0"
)


def end_pauses(application: str, *, now: datetime) -> int:
    """Append the commands that resume the tasks whose pause is over. Return how many events."""
    expiry = timedelta(seconds=settings.ENVIRONMENT.command_expiry_seconds)
    paused = row_mapping.TASKS.load(_IN_TIMED_PAUSE, [application])
    requests = {
        task.id: requested
        for task in paused
        if (requested := timed_pauses.resume_of(task, now=now, expiry=expiry)) is not None
    }
    if not requests:
        return 0
    commands = [requested.command for requested in requests.values()]
    pipelines = {task.pipeline for task in requests}

    def rule(state: StreamState) -> list[Event]:
        return timed_pauses.ended_pauses(state, now=now, expiry=expiry)

    # Evaluated twice, as in `timeouts`: a pause may wait for an instance.
    loaded = projections.current_states(
        application, tasks=requests, commands=commands, pipelines=pipelines
    )
    count = len(rule(loaded))
    if count:
        advance(application, rule, tasks=requests, commands=commands, pipelines=pipelines)
    return count

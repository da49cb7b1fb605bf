"""How long commands take: from the click until the server has the answer of the last agent."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from arrester.controlplane import models
from arrester.controlplane.redis import metric_sums
from arrester.domain.events import CommandApplied, StoredEvent
from arrester.domain.state.states import CommandStatus
from arrester.domain.wire.failure_columns import Stored


def observe(application: str, stored: Iterable[Stored]) -> None:
    """Add the durations of the commands that these events have completed.

    Both times are by the server's clock.
    """
    applied = {
        each.event.data.command
        for each in stored
        if isinstance(each, StoredEvent) and isinstance(each.event.data, CommandApplied)
    }
    if not applied:
        return
    issued = models.Command.objects.filter(
        application=application, id__in=applied, status=CommandStatus.APPLIED.value
    ).values_list("issued_at", flat=True)
    now = datetime.now(UTC)
    for at in issued:
        seconds = max(0.0, (now - at).total_seconds())
        metric_sums.observe(metric_sums.COMMANDS, application, seconds=seconds)

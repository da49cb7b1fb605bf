"""Every read. Nothing here changes anything; answers are frozen and know no Django.

What does not exist raises NotFound. A page is asked for with the cursor of the page before it;
a cursor that is not ours raises InvalidValue. Times are aware, in UTC.
"""

from __future__ import annotations

from controlplane.queries.answers import (
    FailureFilter,
    GroupDetail,
    Health,
    Lag,
    MinuteCount,
    Overview,
    Page,
    Pipeline,
    Quarantined,
    Reach,
    Summary,
    TaskDetail,
)
from controlplane.queries.history import (
    event,
    failures,
    group_occurrences,
    minutes,
    task_history,
)
from controlplane.queries.operations import health, lag, lags, quarantine
from controlplane.queries.standing import (
    application,
    applications,
    command,
    commands,
    group,
    groups,
    held,
    instances,
    overview,
    pipelines,
    task,
    threads,
)

__all__ = [
    "FailureFilter", "GroupDetail", "Health", "Lag", "MinuteCount", "Overview", "Page",
    "Pipeline", "Quarantined", "Reach", "Summary", "TaskDetail",
    "application", "applications", "command", "commands", "event", "failures", "group",
    "group_occurrences", "groups", "health", "held", "instances", "lag", "lags", "minutes",
    "overview", "pipelines", "quarantine", "task", "task_history", "threads",
]  # fmt: skip

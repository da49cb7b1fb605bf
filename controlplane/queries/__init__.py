"""Every read. Nothing here changes anything; answers are frozen and know no Django.

What does not exist raises NotFound. A page is asked for with the cursor of the page before it;
a cursor that is not ours raises InvalidValue. Times are aware, in UTC.
"""

from __future__ import annotations

from controlplane.queries.answers import (
    ApplicationMinute,
    FailureFilter,
    GroupDetail,
    Health,
    Lag,
    MinuteCount,
    Neighbours,
    Overview,
    Page,
    Pipeline,
    Quarantined,
    Reach,
    Summary,
    TaskDetail,
    TaskFilter,
)
from controlplane.queries.history import (
    event,
    failures,
    group_occurrences,
    minutes,
    task_history,
)
from controlplane.queries.lists import (
    heard,
    minutes_by_application,
    neighbours,
    open_commands,
    positions,
    stopped_by_group,
    tasks,
)
from controlplane.queries.operations import health, lag, lags, quarantine
from controlplane.queries.standing import (
    command,
    commands,
    group,
    groups,
    held,
    instances,
    task,
    threads,
)
from controlplane.queries.summaries import application, applications, overview, pipelines

__all__ = [
    "ApplicationMinute", "FailureFilter", "GroupDetail", "Health", "Lag", "MinuteCount",
    "Neighbours", "Overview", "Page", "Pipeline", "Quarantined", "Reach", "Summary", "TaskDetail",
    "TaskFilter",
    "application", "applications", "command", "commands", "event", "failures", "group",
    "group_occurrences", "groups", "health", "heard", "held", "instances", "lag", "lags",
    "minutes", "minutes_by_application", "neighbours", "open_commands", "overview", "pipelines",
    "positions", "quarantine", "stopped_by_group", "task", "task_history", "tasks", "threads",
]  # fmt: skip

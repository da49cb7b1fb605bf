"""Every read. Nothing here changes anything; answers are frozen and know no Django.

What does not exist raises NotFound. A page is asked for with the cursor of the page before it;
a cursor that is not ours raises InvalidValue. Times are aware, in UTC.
"""

from __future__ import annotations

from controlplane.queries import past
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
from controlplane.queries.moments import AsOf, as_of, position
from controlplane.queries.operations import health, lag, lags, quarantine
from controlplane.queries.standing import (
    command,
    commands,
    group,
    groups,
    held,
    instance,
    instances,
    task,
    threads,
)
from controlplane.queries.summaries import application, applications, overview, pipelines

__all__ = [
    "ApplicationMinute", "AsOf", "FailureFilter", "GroupDetail", "Health", "Lag", "MinuteCount",
    "Neighbours", "Overview", "Page", "Pipeline", "Quarantined", "Reach", "Summary", "TaskDetail",
    "TaskFilter", "application", "applications", "as_of", "command", "commands", "event",
    "failures", "group", "group_occurrences", "groups", "health", "heard", "held", "instance",
    "instances", "lag", "lags", "minutes", "minutes_by_application", "neighbours",
    "open_commands", "overview", "past", "pipelines", "position", "positions", "quarantine",
    "stopped_by_group", "task", "task_history", "tasks", "threads",
]  # fmt: skip

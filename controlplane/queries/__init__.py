"""All reads. Nothing here changes anything; results are frozen and independent of Django.

Missing things raise NotFound. A page is requested with the cursor of the previous page; an invalid
cursor raises InvalidValue. Times have a time zone, in UTC.
"""

from __future__ import annotations

from arrester.controlplane.queries.current_state.held_records import (
    held,
    held_in_all,
    held_over_time,
)
from arrester.controlplane.queries.current_state.instances import running
from arrester.controlplane.queries.current_state.policies import policies, runs, task_gauges
from arrester.controlplane.queries.current_state.states import (
    check_known,
    command,
    commands,
    group,
    instance,
    instances,
    task,
    threads,
)
from arrester.controlplane.queries.current_state.summaries import (
    application,
    application_page,
    applications,
    instance_counts,
    overview,
    pipelines,
)
from arrester.controlplane.queries.current_state.task_lists import (
    heard,
    neighbours,
    open_commands,
    positions,
    stopped_by_group,
    tasks,
)
from arrester.controlplane.queries.event_feed.feed import Feed, feed
from arrester.controlplane.queries.failure_history.causes import failed_by_group, top_causes
from arrester.controlplane.queries.failure_history.error_groups import (
    NEWEST,
    SORTS,
    affected,
    group_counts,
    group_history,
    groups,
    groups_by_key,
    groups_of,
    paused,
    paused_of,
    quiet_groups,
    resumed_by,
    stages,
)
from arrester.controlplane.queries.failure_history.history import (
    event,
    failures,
    group_occurrences,
    minutes,
    task_history,
)
from arrester.controlplane.queries.failure_history.search import check_class, check_group
from arrester.controlplane.queries.failure_history.trends import (
    failed_by_application,
    task_turns,
    turns,
)
from arrester.controlplane.queries.filters import (
    AuditFilter,
    DeadLetterFilter,
    FailureFilter,
    GroupFilter,
    TaskFilter,
)
from arrester.controlplane.queries.operation.audit import (
    ACT_KINDS,
    accounts,
    audit,
    dead_letters,
    examples,
    notes_on_command,
    people,
)
from arrester.controlplane.queries.operation.health import (
    health,
    lag,
    lags,
    quarantine,
    quarantined,
    storage,
)
from arrester.controlplane.queries.operation.metrics import Metrics, metrics
from arrester.controlplane.queries.past import as_of_state
from arrester.controlplane.queries.past.position import AsOf, as_of, position
from arrester.controlplane.queries.results import (
    Account,
    Act,
    Affected,
    Brief,
    Cause,
    Gauge,
    GroupDetail,
    Health,
    Lag,
    MinuteCount,
    Neighbours,
    Overview,
    Page,
    Pipeline,
    PipelinePolicy,
    Quarantined,
    Reach,
    Running,
    Stop,
    Storage,
    Summary,
    Tally,
    TaskDetail,
)

__all__ = [
    "ACT_KINDS", "NEWEST", "SORTS", "Account", "Act", "Affected", "AsOf", "AuditFilter",
    "Brief", "Cause", "DeadLetterFilter", "FailureFilter", "Feed", "Gauge", "GroupDetail",
    "GroupFilter", "Health", "Lag", "Metrics", "MinuteCount", "Neighbours", "Overview", "Page",
    "Pipeline", "PipelinePolicy", "Quarantined", "Reach", "Running", "Stop", "Storage",
    "Summary", "Tally", "TaskDetail", "TaskFilter", "accounts", "affected", "application",
    "application_page", "applications", "as_of", "as_of_state",
    "audit", "check_class", "check_group",
    "check_known", "command", "commands",
    "dead_letters", "event", "examples", "failed_by_application", "failed_by_group", "failures",
    "feed",
    "group", "group_counts", "group_history", "group_occurrences", "groups",
    "groups_by_key", "groups_of",
    "health", "heard", "held", "held_in_all", "held_over_time", "instance", "instance_counts",
    "instances", "lag", "lags", "metrics", "minutes", "neighbours", "notes_on_command",
    "open_commands", "overview",
    "paused", "paused_of", "people", "pipelines", "policies", "position", "positions",
    "quarantine", "quarantined", "quiet_groups", "resumed_by", "running", "runs", "stages",
    "stopped_by_group", "storage", "task", "task_gauges", "task_history", "task_turns", "tasks",
    "threads", "top_causes", "turns",
]  # fmt: skip

"""All reads. Nothing here changes anything; results are frozen and independent of Django.

Missing things raise NotFound. A page is requested with the cursor of the previous page; an invalid
cursor raises InvalidValue. Times have a time zone, in UTC.
"""

from __future__ import annotations

from arrester.controlplane.access.login_attempts import Lock, locks
from arrester.controlplane.queries import as_of_state
from arrester.controlplane.queries.as_of_position import AsOf, as_of, log_position
from arrester.controlplane.queries.current_state.applications import (
    Summary,
    application,
    application_page,
    applications,
    log_positions,
)
from arrester.controlplane.queries.current_state.applied_times import AppliedTimes, applied_times
from arrester.controlplane.queries.current_state.commands import (
    command,
    commands,
    open_commands,
    progress,
    redrive_progress,
    rollout_tasks,
    verdict,
    verdicts,
)
from arrester.controlplane.queries.current_state.held_records import (
    Drain,
    drain,
    held,
    held_in_all,
    held_over_time,
)
from arrester.controlplane.queries.current_state.instances import (
    LastHeartbeat,
    Reports,
    RunningInstance,
    instance,
    instance_counts,
    instance_page,
    instances,
    last_heartbeats,
    reports,
)
from arrester.controlplane.queries.current_state.overview import (
    ApplicationSummary,
    Overview,
    overview,
)
from arrester.controlplane.queries.current_state.pipeline_runs import restartable, runs
from arrester.controlplane.queries.current_state.policies import (
    Gauge,
    PipelinePolicy,
    policies,
    run_gauges,
    task_gauges,
)
from arrester.controlplane.queries.current_state.resumable_tasks import (
    paused,
    paused_of,
    resumed_by,
    without_run,
)
from arrester.controlplane.queries.current_state.task_grid import (
    GridPipeline,
    PipelineGrid,
    Section,
    pipelines,
    threads,
)
from arrester.controlplane.queries.current_state.tasks import (
    LATEST_STOP,
    TASK_SORTS,
    TASK_STATES,
    URGENCY,
    TaskDetail,
    TaskFilter,
    is_known,
    stopped_by_group,
    task,
    tasks,
    tasks_of_each,
)
from arrester.controlplane.queries.event_feed import Feed, feed
from arrester.controlplane.queries.failure_history.counts import (
    failed_by_application,
    failed_by_group,
    failed_by_stage,
    top_causes,
)
from arrester.controlplane.queries.failure_history.dead_letters import (
    DeadLetter,
    DeadLetterTotal,
    count_dead_letters,
    dead_letter,
    dead_letter_totals,
    dead_letters,
)
from arrester.controlplane.queries.failure_history.dead_letters import (
    failure_of as failure_of_dead_letter,
)
from arrester.controlplane.queries.failure_history.dead_letters import (
    first_failure_of as first_failure_of_dead_letter,
)
from arrester.controlplane.queries.failure_history.discards import discard_of
from arrester.controlplane.queries.failure_history.error_groups import (
    NEWEST,
    SORTS,
    GroupDetail,
    GroupFilter,
    affected,
    group,
    group_counts,
    group_history,
    groups,
    groups_by_key,
    groups_of,
    owners_of_tasks,
    quiet_groups,
    stages,
)
from arrester.controlplane.queries.failure_history.failures import (
    FailureFilter,
    check_class,
    check_group,
    check_pipeline,
)
from arrester.controlplane.queries.failure_history.field_statistics import (
    FieldStatistics,
    FieldValue,
    GroupFields,
    group_fields,
)
from arrester.controlplane.queries.failure_history.filtered_failures import failures
from arrester.controlplane.queries.failure_history.history import (
    event,
    event_if_kept,
    neighbours,
    state_changes,
    task_history,
    task_state_changes,
)
from arrester.controlplane.queries.failure_history.record_history import (
    RecordHistory,
    record_history,
)
from arrester.controlplane.queries.failure_history.record_outcomes import RecordOutcome
from arrester.controlplane.queries.failure_history.record_search import (
    MAX_SEARCH,
    FoundRecord,
    FoundRecords,
    RecordFilter,
    field_term,
    find_records,
)
from arrester.controlplane.queries.failure_history.series import (
    By,
    SeriesFilter,
    StepCount,
    failure_series,
)
from arrester.controlplane.queries.flow.measured import RECENT, Trend
from arrester.controlplane.queries.flow.pipelines import (
    PipelineFilter,
    PipelineFlow,
    pipeline_flow,
    pipeline_flows,
    pipeline_page,
)
from arrester.controlplane.queries.flow.releases import FirstRelease, first_release
from arrester.controlplane.queries.flow.runs import PastRun, past_runs, run_ends
from arrester.controlplane.queries.flow.series import Duration, FlowInterval, flow_series
from arrester.controlplane.queries.flow.sums import FlowSums, NewestFlow
from arrester.controlplane.queries.operation.agents import AgentCredential, agent_credentials
from arrester.controlplane.queries.operation.audit import (
    ACT_KINDS,
    Act,
    AuditFilter,
    accounts,
    application_roles,
    audit,
    audit_check,
    examples,
    notes_on_command,
    people,
    tokens,
)
from arrester.controlplane.queries.operation.health import (
    Health,
    Lag,
    Reach,
    health,
    lag,
    lags,
    log_gaps,
    quarantine,
    storage,
)
from arrester.controlplane.queries.operation.installation import Finding, Level, findings
from arrester.controlplane.queries.operation.limits import ReachedLimit, limits_reached
from arrester.controlplane.queries.operation.metrics import MetricValues, metrics
from arrester.controlplane.queries.operation.readiness import Readiness, readiness
from arrester.controlplane.queries.ownership import Owners, known_owners, owners
from arrester.controlplane.queries.paging import Page
from arrester.controlplane.queries.saved_filters import saved_filters
from arrester.controlplane.queries.search import SearchResult, search
from arrester.controlplane.redis.heartbeats import SKEW_LIMIT
from arrester.controlplane.store import QuarantinedEntry
from arrester.controlplane.store import read_quarantined_entry as quarantined
from arrester.controlplane.store import read_stream as check_known
from arrester.controlplane.views.dead_letter_selection import STATUSES as DEAD_LETTER_STATUSES
from arrester.controlplane.views.dead_letter_selection import (
    DeadLetterFilter,
    count_open_dead_letters,
)
from arrester.controlplane.views.live_checkpoints import (
    Checkpoints,
    PipelineKey,
    checkpoints,
    pipeline_key,
)
from arrester.controlplane.views.skipped_records import (
    SkippedRecords,
    after_command,
    after_rollout,
)
from arrester.controlplane.views.skipped_records import of_rollout as skipped_in_rollout
from arrester.controlplane.views.skipped_records import of_tasks as skipped_of_tasks
from arrester.domain.state.live_runs import live

__all__ = [
    "ACT_KINDS", "DEAD_LETTER_STATUSES", "LATEST_STOP", "MAX_SEARCH", "NEWEST", "RECENT",
    "SKEW_LIMIT", "SORTS", "TASK_SORTS", "TASK_STATES", "URGENCY", "Act", "AgentCredential",
    "ApplicationSummary", "AppliedTimes", "AsOf", "AuditFilter", "By", "Checkpoints", "DeadLetter",
    "DeadLetterFilter", "DeadLetterTotal", "Drain", "Duration", "FailureFilter", "Feed",
    "FieldStatistics", "FieldValue", "Finding", "FirstRelease", "FlowInterval", "FlowSums",
    "FoundRecord", "FoundRecords", "Gauge", "GridPipeline", "GroupDetail", "GroupFields",
    "GroupFilter", "Health", "Lag", "LastHeartbeat", "Level", "Lock", "MetricValues", "NewestFlow",
    "Overview", "Owners", "Page", "PastRun", "PipelineFilter", "PipelineFlow", "PipelineGrid",
    "PipelineKey", "PipelinePolicy", "QuarantinedEntry", "Reach", "ReachedLimit", "Readiness",
    "RecordFilter", "RecordHistory", "RecordOutcome", "Reports", "RunningInstance", "SearchResult",
    "Section", "SeriesFilter", "SkippedRecords", "StepCount", "Summary", "TaskDetail", "TaskFilter",
    "Trend", "accounts", "affected", "after_command", "after_rollout", "agent_credentials",
    "application", "application_page", "application_roles", "applications", "applied_times",
    "as_of", "as_of_state", "audit", "audit_check", "check_class", "check_group", "check_known",
    "check_pipeline", "checkpoints", "command", "commands", "count_dead_letters",
    "count_open_dead_letters", "dead_letter", "dead_letter_totals", "dead_letters", "discard_of",
    "drain", "event",
    "event_if_kept", "examples", "failed_by_application", "failed_by_group", "failed_by_stage",
    "failure_of_dead_letter", "failure_series", "failures", "feed", "field_term",
    "find_records", "findings", "first_failure_of_dead_letter",
    "first_release", "flow_series", "group", "group_counts", "group_fields", "group_history",
    "groups", "groups_by_key", "groups_of", "health", "held", "held_in_all", "held_over_time",
    "instance", "instance_counts", "instance_page", "instances", "is_known", "known_owners", "lag",
    "lags", "last_heartbeats", "limits_reached", "live", "locks", "log_gaps", "log_position",
    "log_positions", "metrics", "neighbours", "notes_on_command", "open_commands", "overview",
    "owners", "owners_of_tasks", "past_runs", "paused", "paused_of", "people", "pipeline_flow",
    "pipeline_flows", "pipeline_key", "pipeline_page", "pipelines", "policies", "progress",
    "quarantine", "quarantined", "quiet_groups", "readiness", "record_history", "redrive_progress",
    "reports", "restartable", "resumed_by", "rollout_tasks", "run_ends", "run_gauges", "runs",
    "saved_filters", "search", "skipped_in_rollout", "skipped_of_tasks", "stages", "state_changes",
    "stopped_by_group", "storage", "task", "task_gauges", "task_history", "task_state_changes",
    "tasks", "tasks_of_each", "threads", "tokens", "top_causes", "verdict", "verdicts",
    "without_run",
]  # fmt: skip

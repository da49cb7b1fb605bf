"""The endpoints under /api/v1/."""

from __future__ import annotations

from django.urls import path, re_path
from drf_spectacular.views import SpectacularSwaggerSplitView

from arrester.dashboard.rest import problems
from arrester.dashboard.rest.access import agent_key, agents, audit, tokens
from arrester.dashboard.rest.event_feed import page, parquet, stream, subscriptions
from arrester.dashboard.rest.resources import (
    alerts,
    applications,
    commands,
    dead_letters,
    error_groups,
    failure_series,
    failures,
    notes,
    pipelines,
    quarantine,
    redrives,
    server,
    tasks,
)
from arrester.dashboard.rest.schema import SchemaView

# This view renders HTML only, and could not answer OPTIONS.
docs = SpectacularSwaggerSplitView.as_view(
    url_name="schema",
    template_name="dashboard/api_docs.html",
    http_method_names=["get", "head"],
)

urlpatterns = [
    path("applications", applications.ApplicationsView.as_view(), name="api-applications"),
    path(
        "applications/<str:name>", applications.OneApplicationView.as_view(), name="api-application"
    ),
    path(
        "applications/<str:name>/instances",
        applications.InstancesView.as_view(),
        name="api-instances",
    ),
    path(
        "applications/<str:name>/instances/<uuid:id>",
        applications.OneInstanceView.as_view(),
        name="api-instance",
    ),
    path(
        "applications/<str:name>/runs", applications.RunsView.as_view(), name="api-application-runs"
    ),
    path("pipelines", pipelines.PipelinesView.as_view(), name="api-pipelines"),
    path("pipelines/series", pipelines.AllSeriesView.as_view(), name="api-every-pipeline-series"),
    path(
        "pipelines/<str:application>/<str:pipeline>",
        pipelines.OnePipelineView.as_view(),
        name="api-pipeline",
    ),
    path(
        "pipelines/<str:application>/<str:pipeline>/series",
        pipelines.SeriesView.as_view(),
        name="api-pipeline-series",
    ),
    path(
        "pipelines/<str:application>/<str:pipeline>/runs",
        pipelines.RunsView.as_view(),
        name="api-pipeline-runs",
    ),
    path("tasks", tasks.TasksView.as_view(), name="api-tasks"),
    path("tasks/<str:digest>", tasks.OneTaskView.as_view(), name="api-task"),
    path("failures", failures.FailuresView.as_view(), name="api-failures"),
    path(
        "failures/series",
        failure_series.FailureSeriesView.as_view(),
        name="api-failure-series",
    ),
    path(
        "failures/<str:application>/<int:sequence>/reveal",
        failures.RevealView.as_view(),
        name="api-reveal",
    ),
    path("records", failures.RecordsView.as_view(), name="api-records"),
    path(
        "records/<str:application>/<int:sequence>",
        failures.OneRecordView.as_view(),
        name="api-record",
    ),
    path("errors", error_groups.ErrorGroupsView.as_view(), name="api-errors"),
    path("errors/acts", error_groups.ActOnGroupsView.as_view(), name="api-act-on-groups"),
    path(
        "errors/<str:application>/<path:fingerprint>/acts",
        error_groups.ActOnGroupView.as_view(),
        name="api-act-on-group",
    ),
    path(
        "errors/<str:application>/<path:fingerprint>/history",
        error_groups.GroupHistoryView.as_view(),
        name="api-group-history",
    ),
    path(
        "errors/<str:application>/<path:fingerprint>/fields",
        error_groups.GroupFieldsView.as_view(),
        name="api-error-fields",
    ),
    # After the others: a fingerprint may contain any character.
    path(
        "errors/<str:application>/<path:fingerprint>",
        error_groups.OneErrorGroupView.as_view(),
        name="api-error",
    ),
    path("agents/key", agent_key.AgentKeyView.as_view(), name="api-agent-key"),
    path("agents", agents.AgentsView.as_view(), name="api-agents"),
    path("agents/<int:id>", agents.OneAgentView.as_view(), name="api-agent"),
    path("alerts", alerts.AlertsView.as_view(), name="api-alerts"),
    path(
        "alerts/<int:id>/acknowledge",
        alerts.AcknowledgeView.as_view(),
        name="api-acknowledge-alert",
    ),
    path("audit", audit.AuditView.as_view(), name="api-audit"),
    path("audit/export", audit.AuditExportView.as_view(), name="api-audit-export"),
    path("dead-letters", dead_letters.DeadLetterListView.as_view(), name="api-dead-letters"),
    path(
        "dead-letters/totals",
        dead_letters.DeadLetterTotalsView.as_view(),
        name="api-dead-letter-totals",
    ),
    path("dead-letters/discard", dead_letters.DiscardView.as_view(), name="api-discard"),
    path("dead-letters/redrive", redrives.RedriveView.as_view(), name="api-redrive"),
    path(
        "dead-letters/<str:application>/<str:id>",
        dead_letters.OneDeadLetterView.as_view(),
        name="api-dead-letter",
    ),
    path(
        "dead-letters/<str:application>/<str:id>/test",
        redrives.DeadLetterTestView.as_view(),
        name="api-test-dead-letter",
    ),
    path(
        "dead-letters/<str:application>/<str:id>/record",
        dead_letters.RecordView.as_view(),
        name="api-dead-letter-record",
    ),
    path("held", tasks.HeldView.as_view(), name="api-held"),
    path("instances", applications.RunningInstancesView.as_view(), name="api-every-instance"),
    path("notes", notes.NotesView.as_view(), name="api-notes"),
    path("quarantine", quarantine.QuarantineView.as_view(), name="api-quarantine"),
    path(
        "quarantine/<int:number>/acts",
        quarantine.ActOnQuarantineView.as_view(),
        name="api-act-on-quarantine",
    ),
    path("dismiss", tasks.DismissManyView.as_view(), name="api-dismiss-many"),
    path("resume", tasks.ResumeManyView.as_view(), name="api-resume-many"),
    path("commands", commands.CommandsView.as_view(), name="api-commands"),
    path("commands/<uuid:id>", commands.OneCommandView.as_view(), name="api-command"),
    path(
        "commands/<uuid:id>/cancel",
        commands.CancelCommandView.as_view(),
        name="api-cancel-command",
    ),
    path(
        "event-subscriptions",
        subscriptions.SubscriptionsView.as_view(),
        name="api-event-subscriptions",
    ),
    path(
        "event-subscriptions/<int:id>",
        subscriptions.OneSubscriptionView.as_view(),
        name="api-event-subscription",
    ),
    path(
        "event-subscriptions/<int:id>/replay",
        subscriptions.ReplayView.as_view(),
        name="api-replay-events",
    ),
    path("feed", page.FeedView.as_view(), name="api-feed"),
    path("feed/ndjson", stream.LinesView.as_view(), name="api-feed-ndjson"),
    path("feed/parquet", parquet.ParquetView.as_view(), name="api-feed-parquet"),
    path("feed/sse", stream.ServerSentEventsView.as_view(), name="api-feed-sse"),
    path("installation", server.InstallationView.as_view(), name="api-installation"),
    path("status", server.StatusView.as_view(), name="api-status"),
    path("tokens", tokens.TokensView.as_view(), name="api-tokens"),
    path("tokens/<int:id>", tokens.OneTokenView.as_view(), name="api-token"),
    path("schema/", SchemaView.as_view(), name="schema"),
    path("docs/", docs, name="api-docs"),
    # A `path` has no line breaks.
    re_path(r"(?P<path>[\s\S]*)", problems.unknown, name="api-unknown"),
]

"""The endpoints under /api/."""

from __future__ import annotations

from django.urls import path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from arrester.dashboard import http_errors
from arrester.dashboard.rest import (
    applications,
    audit,
    commands,
    error_groups,
    failures,
    feed,
    notes,
    quarantine,
    tasks,
)

urlpatterns = [
    path("applications", applications.Applications.as_view(), name="api-applications"),
    path("applications/<str:name>", applications.OneApplication.as_view(), name="api-application"),
    path(
        "applications/<str:name>/instances", applications.Instances.as_view(), name="api-instances"
    ),
    path(
        "applications/<str:name>/instances/<uuid:id>",
        applications.OneInstance.as_view(),
        name="api-instance",
    ),
    path("applications/<str:name>/threads", applications.Threads.as_view(), name="api-threads"),
    path("tasks", tasks.Tasks.as_view(), name="api-tasks"),
    path("tasks/<str:digest>", tasks.OneTask.as_view(), name="api-task"),
    path("failures", failures.Failures.as_view(), name="api-failures"),
    path("errors", error_groups.ErrorGroups.as_view(), name="api-errors"),
    path("errors/acts", error_groups.ActOnGroups.as_view(), name="api-act-on-groups"),
    path(
        "errors/<str:application>/<path:fingerprint>/acts",
        error_groups.ActOnGroup.as_view(),
        name="api-act-on-group",
    ),
    path(
        "errors/<str:application>/<path:fingerprint>/history",
        error_groups.GroupHistory.as_view(),
        name="api-group-history",
    ),
    # After the two others: a fingerprint may contain any character.
    path(
        "errors/<str:application>/<path:fingerprint>",
        error_groups.OneErrorGroup.as_view(),
        name="api-error",
    ),
    path("audit", audit.Audit.as_view(), name="api-audit"),
    path("dead-letters", failures.DeadLetterList.as_view(), name="api-dead-letters"),
    path("held", tasks.Held.as_view(), name="api-held"),
    path("instances", applications.RunningInstances.as_view(), name="api-every-instance"),
    path("notes", notes.Notes.as_view(), name="api-notes"),
    path("quarantine", quarantine.Quarantine.as_view(), name="api-quarantine"),
    path(
        "quarantine/<int:number>/acts",
        quarantine.ActOnQuarantine.as_view(),
        name="api-act-on-quarantine",
    ),
    path("resume", tasks.ResumeMany.as_view(), name="api-resume-many"),
    path("commands", commands.Commands.as_view(), name="api-commands"),
    path("commands/<uuid:id>", commands.OneCommand.as_view(), name="api-command"),
    path(
        "commands/<uuid:id>/cancel",
        commands.CancelCommand.as_view(),
        name="api-cancel-command",
    ),
    path("feed", feed.Feed.as_view(), name="api-feed"),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("docs/", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="api-docs"),
    path("<path:path>", http_errors.unknown, name="api-unknown"),
]

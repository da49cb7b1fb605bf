"""The endpoints under /api/."""

from __future__ import annotations

from django.urls import path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from arrester.dashboard import http_errors
from arrester.dashboard.rest import commands, details, group_actions, lists, quarantine, states

urlpatterns = [
    path("applications", states.Applications.as_view(), name="api-applications"),
    path("applications/<str:name>", states.Application.as_view(), name="api-application"),
    path("applications/<str:name>/instances", details.Instances.as_view(), name="api-instances"),
    path(
        "applications/<str:name>/instances/<uuid:id>",
        details.Instance.as_view(),
        name="api-instance",
    ),
    path("applications/<str:name>/threads", details.Threads.as_view(), name="api-threads"),
    path("tasks", states.Tasks.as_view(), name="api-tasks"),
    path("tasks/<str:digest>", states.Task.as_view(), name="api-task"),
    path("failures", states.Failures.as_view(), name="api-failures"),
    path("errors", states.ErrorGroups.as_view(), name="api-errors"),
    path("errors/acts", group_actions.ActOnGroups.as_view(), name="api-act-on-groups"),
    path(
        "errors/<str:application>/<path:fingerprint>/acts",
        group_actions.ActOnGroup.as_view(),
        name="api-act-on-group",
    ),
    path(
        "errors/<str:application>/<path:fingerprint>/history",
        group_actions.GroupHistory.as_view(),
        name="api-group-history",
    ),
    # After the two others: a fingerprint may contain any character.
    path(
        "errors/<str:application>/<path:fingerprint>",
        details.ErrorGroup.as_view(),
        name="api-error",
    ),
    path("audit", lists.Audit.as_view(), name="api-audit"),
    path("dead-letters", lists.DeadLetters.as_view(), name="api-dead-letters"),
    path("held", lists.Held.as_view(), name="api-held"),
    path("instances", lists.EveryInstance.as_view(), name="api-every-instance"),
    path("notes", group_actions.Notes.as_view(), name="api-notes"),
    path("quarantine", quarantine.Quarantine.as_view(), name="api-quarantine"),
    path(
        "quarantine/<int:number>/acts",
        quarantine.ActOnQuarantine.as_view(),
        name="api-act-on-quarantine",
    ),
    path("resume", group_actions.ResumeMany.as_view(), name="api-resume-many"),
    path("commands", commands.Commands.as_view(), name="api-commands"),
    path("commands/<uuid:id>", commands.Command.as_view(), name="api-command"),
    path(
        "commands/<uuid:id>/cancel",
        group_actions.CancelCommand.as_view(),
        name="api-cancel-command",
    ),
    path("feed", details.Feed.as_view(), name="api-feed"),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("docs/", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="api-docs"),
    path("<path:path>", http_errors.unknown, name="api-unknown"),
]

"""The endpoints under /api/."""

from __future__ import annotations

from django.urls import path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from dashboard import api, api_groups, api_lists, api_parts, api_quarantine

urlpatterns = [
    path("applications", api.Applications.as_view(), name="api-applications"),
    path("applications/<str:name>", api.Application.as_view(), name="api-application"),
    path("applications/<str:name>/instances", api_parts.Instances.as_view(), name="api-instances"),
    path(
        "applications/<str:name>/instances/<uuid:id>",
        api_parts.Instance.as_view(),
        name="api-instance",
    ),
    path("applications/<str:name>/threads", api_parts.Threads.as_view(), name="api-threads"),
    path("tasks", api.Tasks.as_view(), name="api-tasks"),
    path("tasks/<str:digest>", api.Task.as_view(), name="api-task"),
    path("failures", api.Failures.as_view(), name="api-failures"),
    path("errors", api.ErrorGroups.as_view(), name="api-errors"),
    path("errors/acts", api_groups.ActOnGroups.as_view(), name="api-act-on-groups"),
    path(
        "errors/<str:application>/<path:fingerprint>/acts",
        api_groups.ActOnGroup.as_view(),
        name="api-act-on-group",
    ),
    path(
        "errors/<str:application>/<path:fingerprint>/history",
        api_groups.GroupHistory.as_view(),
        name="api-group-history",
    ),
    # Behind the two: a fingerprint may have any character.
    path(
        "errors/<str:application>/<path:fingerprint>",
        api_parts.ErrorGroup.as_view(),
        name="api-error",
    ),
    path("audit", api_lists.Audit.as_view(), name="api-audit"),
    path("dead-letters", api_lists.DeadLetters.as_view(), name="api-dead-letters"),
    path("held", api_lists.Held.as_view(), name="api-held"),
    path("instances", api_lists.EveryInstance.as_view(), name="api-every-instance"),
    path("notes", api_groups.Notes.as_view(), name="api-notes"),
    path("quarantine", api_quarantine.Quarantine.as_view(), name="api-quarantine"),
    path(
        "quarantine/<int:number>/acts",
        api_quarantine.ActOnQuarantine.as_view(),
        name="api-act-on-quarantine",
    ),
    path("resume", api_groups.ResumeMany.as_view(), name="api-resume-many"),
    path("commands", api.Commands.as_view(), name="api-commands"),
    path("commands/<uuid:id>", api.Command.as_view(), name="api-command"),
    path(
        "commands/<uuid:id>/cancel",
        api_groups.CancelCommand.as_view(),
        name="api-cancel-command",
    ),
    path("feed", api_parts.Feed.as_view(), name="api-feed"),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("docs/", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="api-docs"),
]

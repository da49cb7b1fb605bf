"""The URLs of all pages, dialogs, actions and endpoints."""

from __future__ import annotations

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path, register_converter

from arrester.dashboard import health_probes, metrics
from arrester.dashboard.actions import (
    bulk_groups,
    bulk_resume,
    command_dialogs,
    group_actions,
    notes,
    test_error,
)
from arrester.dashboard.live import stream
from arrester.dashboard.pages import (
    applications,
    audit,
    commands,
    dead_letters,
    errors,
    exports,
    held,
    instances,
    overview,
    quarantine,
    settings,
    tasks,
)
from arrester.dashboard.permissions import for_anybody
from arrester.dashboard.rest import urls as rest_urls


class Digest:
    """The digest of a task."""

    regex = "[0-9a-f]{32}"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


class AnyText(Digest):
    """A text from an agent: any text has a URL."""

    regex = ".*"


class Verb(Digest):
    """The act on an error group."""

    regex = "resolve|reopen|unmute"


register_converter(Digest, "digest")
register_converter(Verb, "verb")
register_converter(AnyText, "text")

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("applications", applications.applications, name="applications"),
    path("applications/<str:name>", applications.application, name="application"),
    path("applications/<str:name>/shut-down", command_dialogs.shut_down, name="shut-down"),
    path(
        "applications/<str:name>/shut-down/ask",
        command_dialogs.shut_down_dialog,
        name="shut-down-dialog",
    ),
    path("applications/<str:name>/start", command_dialogs.start, name="start"),
    path("applications/<str:name>/start/ask", command_dialogs.start_dialog, name="start-dialog"),
    path("applications/<str:name>/policy", command_dialogs.set_policy, name="set-policy"),
    path("applications/<str:name>/policy/ask", command_dialogs.policy_dialog, name="policy-dialog"),
    path("tasks", tasks.tasks, name="tasks"),
    path("tasks/<digest:digest>", tasks.task, name="task"),
    path("tasks/<digest:digest>/history", tasks.history, name="task-history"),
    path("tasks/<digest:digest>/note", notes.on_task, name="note-on-task"),
    path("tasks/<digest:digest>/resume", command_dialogs.resume, name="resume"),
    path("tasks/<digest:digest>/skip", command_dialogs.skip, name="skip"),
    path("tasks/<digest:digest>/skip/ask", command_dialogs.skip_dialog, name="skip-dialog"),
    path("tasks/<digest:digest>/resume-at", command_dialogs.resume_at, name="resume-at"),
    path(
        "tasks/<digest:digest>/resume-at/ask",
        command_dialogs.resume_at_dialog,
        name="resume-at-dialog",
    ),
    path("tasks/<digest:digest>/pause", command_dialogs.pause, name="pause"),
    path("tasks/<digest:digest>/restart", command_dialogs.restart, name="restart"),
    path("errors", errors.errors, name="errors"),
    path("errors/<str:application>/<text:fingerprint>", errors.error, name="error"),
    path("error-groups", bulk_groups.act, name="act-on-groups"),
    path("error-groups/ask", bulk_groups.dialog, name="groups-dialog"),
    path(
        "error-groups/<str:application>/mute/ask/<text:fingerprint>",
        group_actions.mute_dialog,
        name="mute-dialog",
    ),
    path(
        "error-groups/<str:application>/mute/<text:fingerprint>",
        group_actions.mute,
        name="mute-group",
    ),
    path(
        "error-groups/<str:application>/note/<text:fingerprint>",
        group_actions.note,
        name="note-on-group",
    ),
    path(
        "error-groups/<str:application>/<verb:verb>/<text:fingerprint>",
        group_actions.act,
        name="act-on-group",
    ),
    path("resume", bulk_resume.resume, name="resume-many"),
    path("resume/ask", bulk_resume.dialog, name="resume-many-dialog"),
    path("export/<slug:what>.<slug:form>", exports.export, name="export"),
    path("commands", commands.commands, name="commands"),
    path("commands/<uuid:id>", commands.command, name="command"),
    path("commands/<uuid:id>/cancel", commands.cancel, name="cancel-command"),
    path("commands/<uuid:id>/note", commands.note, name="note-on-command"),
    path("test-error", test_error.send, name="test-error"),
    path("dead-letters", dead_letters.dead_letters, name="dead-letters"),
    path(
        "dead-letters/<str:application>/<int:sequence>",
        dead_letters.dead_letter,
        name="dead-letter",
    ),
    path("held", held.held, name="held"),
    path("audit", audit.audit, name="audit"),
    path("instances", instances.instances, name="instances"),
    path("settings", settings.settings, name="settings"),
    path("settings/accounts", settings.create, name="create-account"),
    path("settings/accounts/<slug:verb>", settings.change, name="change-account"),
    path("quarantine", quarantine.quarantine, name="quarantine"),
    path("quarantine/<int:number>/put-back", quarantine.put_back, name="put-back"),
    path("quarantine/<int:number>/dismiss", quarantine.dismiss, name="dismiss-aside"),
    path(
        "quarantine/<int:number>/dismiss/ask",
        quarantine.dismiss_dialog,
        name="dismiss-aside-dialog",
    ),
    path("live", stream.live, name="live"),
    path(
        "login",
        for_anybody(LoginView.as_view(template_name="dashboard/login.html")),
        name="login",
    ),
    path("logout", for_anybody(LogoutView.as_view()), name="logout"),
    path("healthz", health_probes.healthz, name="healthz"),
    path("readyz", health_probes.readyz, name="readyz"),
    path("metrics", metrics.Metrics.as_view(), name="metrics"),
    path("api/", include(rest_urls)),
]

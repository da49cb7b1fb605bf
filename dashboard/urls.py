"""The URLs of all pages, dialogs, actions and endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.urls import URLPattern, include, path, register_converter

from arrester.dashboard import health_probes, metrics
from arrester.dashboard.actions import alerts as alert_actions
from arrester.dashboard.actions import (
    application_commands,
    bulk_commands,
    error_groups,
    instance_commands,
    pipeline_commands,
    record_mends,
    record_tests,
    redrives,
    reveal,
    rollouts,
    saved_filters,
    task_commands,
)
from arrester.dashboard.actions import dead_letters as dead_letter_actions
from arrester.dashboard.live import stream
from arrester.dashboard.pages import (
    alerts,
    applications,
    audit,
    commands,
    dead_letters,
    errors,
    exports,
    glossary,
    instances,
    overview,
    owners,
    pipelines,
    quarantine,
    search,
    settings,
    tasks,
)
from arrester.dashboard.pages.login import sign_in, single_sign_on
from arrester.dashboard.permissions import for_everyone
from arrester.dashboard.rest import problems
from arrester.dashboard.rest import urls as rest_urls
from arrester.domain.commands.kinds import KINDS, TASK_KINDS, Kind, Subject


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


def _of_commands(prefix: str, actions: Any, rows: Iterable[Kind]) -> Iterator[URLPattern]:
    """Yield the URLs of commands and of their dialogs."""
    for row in rows:
        given, name = {"kind": row.kind}, row.slug
        yield path(f"{prefix}/{name}", actions.issue, given, name=name)
        if row.has_dialog:
            yield path(f"{prefix}/{name}/ask", actions.dialog, given, name=f"{name}-dialog")


def _of_pipelines(prefix: str) -> Iterator[URLPattern]:
    """Yield the URLs of commands for pipelines and of their dialogs."""
    for row in KINDS.values():
        if row.subject is Subject.PIPELINE:
            given, name = {"kind": row.kind}, row.kind.lower().replace("_", "-")
            yield path(f"{prefix}/{name}", pipeline_commands.issue, given, name=name)
            yield path(
                f"{prefix}/{name}/ask", pipeline_commands.dialog, given, name=f"{name}-dialog"
            )


#: A command with a patch has a dialog of its own.
_TASK_ROWS = [row for row in TASK_KINDS.values() if "patch" not in row.fields]
_APPLICATION_ROWS = [row for row in KINDS.values() if row.subject is Subject.APPLICATION]


urlpatterns = [
    path("", overview.overview, name="overview"),
    path("search", search.search, name="search"),
    path("records/<str:application>/<int:sequence>", search.record, name="record"),
    path("problems", overview.problems, name="problems"),
    path("pipelines", pipelines.pipelines, name="pipelines"),
    path("pipelines/<str:application>/<str:name>", pipelines.pipeline, name="pipeline"),
    path("applications", applications.applications, name="applications"),
    path("applications/<str:name>", applications.application, name="application"),
    *_of_commands("applications/<str:name>", application_commands, _APPLICATION_ROWS),
    path("applications/<str:name>/policy", application_commands.set_policy, name="set-policy"),
    path(
        "applications/<str:name>/policy/ask",
        application_commands.policy_dialog,
        name="policy-dialog",
    ),
    *_of_pipelines("applications/<str:name>"),
    path("applications/<str:name>/pause-key", pipeline_commands.pause_key, name="pause-key"),
    path(
        "applications/<str:name>/pause-key/ask",
        pipeline_commands.key_dialog,
        name="pause-key-dialog",
    ),
    path(
        "applications/<str:name>/instances/<uuid:id>/shut-down",
        instance_commands.shut_down,
        name="shut-down-instance",
    ),
    path(
        "applications/<str:name>/instances/<uuid:id>/shut-down/ask",
        instance_commands.dialog,
        name="shut-down-instance-dialog",
    ),
    path("tasks", tasks.tasks, name="tasks"),
    path("tasks/<digest:digest>", tasks.task, name="task"),
    path("tasks/<digest:digest>/history", tasks.history, name="task-history"),
    path("tasks/<digest:digest>/note", task_commands.note, name="note-on-task"),
    *_of_commands("tasks/<digest:digest>", task_commands, _TASK_ROWS),
    path("tasks/<digest:digest>/mend", record_mends.issue, name="mend"),
    path("tasks/<digest:digest>/mend/ask", record_mends.dialog, name="mend-dialog"),
    path("tasks/<digest:digest>/mend/review", record_mends.review, name="review-mend"),
    path("filters", saved_filters.save, name="save-filter"),
    path("filters/ask", saved_filters.dialog, name="filter-dialog"),
    path("owners", owners.owners, name="owners"),
    path("owners/rules", owners.save, name="save-owner-rule"),
    path("owners/rules/ask", owners.dialog, name="owner-rule-dialog"),
    path("owners/rules/<int:id>/delete", owners.delete, name="delete-owner-rule"),
    path("tasks/<digest:digest>/test-record", record_tests.test, name="test-record"),
    path("commands/<uuid:id>/test", record_tests.result, name="test-result"),
    path("errors", errors.errors, name="errors"),
    path("errors/<str:application>/<text:fingerprint>", errors.error, name="error"),
    path("error-groups", error_groups.bulk_act, name="act-on-groups"),
    path("error-groups/ask", error_groups.bulk_dialog, name="groups-dialog"),
    path(
        "error-groups/<str:application>/mute/ask/<text:fingerprint>",
        error_groups.mute_dialog,
        name="mute-dialog",
    ),
    path(
        "error-groups/<str:application>/mute/<text:fingerprint>",
        error_groups.mute,
        name="mute-group",
    ),
    path(
        "error-groups/<str:application>/assign/ask/<text:fingerprint>",
        error_groups.assign_dialog,
        name="assign-dialog",
    ),
    path(
        "error-groups/<str:application>/assign/<text:fingerprint>",
        error_groups.assign,
        name="assign-group",
    ),
    path(
        "error-groups/<str:application>/note/<text:fingerprint>",
        error_groups.note,
        name="note-on-group",
    ),
    path(
        "error-groups/<str:application>/<verb:verb>/<text:fingerprint>",
        error_groups.act,
        name="act-on-group",
    ),
    path(
        "failures/<str:application>/<int:sequence>/reveal/ask", reveal.dialog, name="reveal-dialog"
    ),
    path("failures/<str:application>/<int:sequence>/reveal", reveal.reveal, name="reveal"),
    path("resume", bulk_commands.resume, name="resume-many"),
    path("resume/ask", bulk_commands.dialog, name="resume-many-dialog"),
    path("rollouts", rollouts.start, name="start-rollout"),
    path("rollouts/ask", rollouts.dialog, name="rollout-dialog"),
    path("dismiss", bulk_commands.dismiss, name="dismiss-many"),
    path("dismiss/ask", bulk_commands.dismiss_dialog, name="dismiss-many-dialog"),
    path("export/<slug:what>.<slug:form>", exports.export, name="export"),
    path("commands", commands.commands, name="commands"),
    path("commands/<uuid:id>", commands.command, name="command"),
    path("commands/<uuid:id>/cancel", commands.cancel, name="cancel-command"),
    path("commands/<uuid:id>/note", commands.note, name="note-on-command"),
    path("test-error", settings.send_test_error, name="test-error"),
    path("dead-letters", dead_letters.dead_letters, name="dead-letters"),
    path("dead-letters/discard", dead_letter_actions.discard, name="discard"),
    path("dead-letters/discard/ask", dead_letter_actions.discard_dialog, name="discard-dialog"),
    path("dead-letters/redrive", redrives.start, name="start-redrive"),
    path("dead-letters/redrive/ask", redrives.dialog, name="redrive-dialog"),
    path("dead-letters/redrive/preview", redrives.preview, name="preview-redrive"),
    # This path precedes that of an event, since an id may have digits only.
    path(
        "dead-letters/<str:application>/<digest:id>", dead_letters.dead_letter, name="dead-letter"
    ),
    path(
        "dead-letters/<str:application>/<digest:id>/record",
        dead_letters.dead_letter_record,
        name="dead-letter-record",
    ),
    path(
        "dead-letters/<str:application>/<digest:id>/edit/ask",
        redrives.edit_dialog,
        name="edit-record-dialog",
    ),
    path(
        "dead-letters/<str:application>/<digest:id>/edit",
        redrives.review,
        name="review-record",
    ),
    path(
        "dead-letters/<str:application>/<digest:id>/test",
        record_tests.test_dead_letter,
        name="test-dead-letter",
    ),
    path(
        "dead-letters/<str:application>/<int:sequence>",
        dead_letters.dead_letter_event,
        name="dead-letter-event",
    ),
    path("held", tasks.held, name="held"),
    path("alerts", alerts.alerts, name="alerts"),
    path("alerts/settings", alerts.settings, name="alert-settings"),
    path("alerts/channels", alert_actions.add_channel, name="add-channel"),
    path("alerts/channels/<int:id>/delete", alert_actions.delete_channel, name="delete-channel"),
    path("alerts/channels/<int:id>/test", alert_actions.test_channel, name="test-channel"),
    path("alerts/rules", alert_actions.save_rule, name="save-rule"),
    path("alerts/rules/ask", alert_actions.rule_dialog, name="rule-dialog"),
    path("alerts/rules/<int:id>/delete", alert_actions.delete_rule, name="delete-rule"),
    path("alerts/limits", alert_actions.set_limits, name="set-limits"),
    path("alerts/limits/ask", alert_actions.limits_dialog, name="limits-dialog"),
    path("alerts/subscriptions", alert_actions.add_subscription, name="add-subscription"),
    path("alerts/subscriptions/ask", alert_actions.subscription_dialog, name="subscription-dialog"),
    path(
        "alerts/subscriptions/<int:id>/delete",
        alert_actions.delete_subscription,
        name="delete-subscription",
    ),
    path(
        "alerts/subscriptions/<int:id>/replay",
        alert_actions.replay_subscription,
        name="replay-subscription",
    ),
    path("alerts/messages/<uuid:id>", alert_actions.send_again, name="send-alert-again"),
    path("alerts/<int:id>/acknowledge", alert_actions.acknowledge, name="acknowledge-alert"),
    path("audit", audit.audit, name="audit"),
    path("glossary", glossary.glossary, name="glossary"),
    path("instances", instances.instances, name="instances"),
    path("settings", settings.settings, name="settings"),
    path("settings/accounts", settings.create, name="create-account"),
    path("settings/password", sign_in.password, name="password"),
    path("settings/own-alerts", settings.own_alerts, name="own-alerts"),
    path("settings/unlock", settings.unlock, name="unlock"),
    path("settings/tokens", settings.create_token, name="create-token"),
    path("settings/tokens/<int:id>/revoke", settings.revoke_token, name="revoke-token"),
    path("settings/accounts/<slug:verb>", settings.change, name="change-account"),
    path("settings/roles", settings.grant_role, name="grant-role"),
    path("settings/roles/withdraw", settings.withdraw_role, name="withdraw-role"),
    path("settings/agents", settings.add_agent, name="add-agent"),
    path("settings/agents/<int:id>/remove", settings.remove_agent, name="remove-agent"),
    path("quarantine", quarantine.quarantine, name="quarantine"),
    path("quarantine/<int:number>/put-back", quarantine.requeue, name="put-back"),
    path("quarantine/<int:number>/dismiss", quarantine.dismiss, name="dismiss-entry"),
    path(
        "quarantine/<int:number>/dismiss/ask",
        quarantine.dismiss_dialog,
        name="dismiss-entry-dialog",
    ),
    path("live", stream.live, name="live"),
    path("login", for_everyone(sign_in.LogIn.as_view()), name="login"),
    path("login/sso", for_everyone(single_sign_on.begin), name="sign-on"),
    path("login/sso/callback", for_everyone(single_sign_on.callback), name="sign-on-callback"),
    path("logout", for_everyone(sign_in.LogOut.as_view()), name="logout"),
    path("healthz", health_probes.healthz, name="healthz"),
    path("readyz", health_probes.readyz, name="readyz"),
    path("metrics", metrics.MetricsView.as_view(), name="metrics"),
    path("api/v1/", include(rest_urls)),
    path("api/<path:path>", problems.unversioned, name="api-unversioned"),
]

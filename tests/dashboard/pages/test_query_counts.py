"""The number of queries of each page and REST list does not grow with the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import get_resolver, reverse

from arrester.controlplane import actions, queries
from arrester.dashboard import session
from arrester.dashboard.components import attention
from arrester.dashboard.pages.applications import TABS
from arrester.dashboard.pages.errors import TABS as ERROR_TABS
from arrester.dashboard.pages.tasks import HISTORY_FORMS
from tests.dashboard.accounts import logged_in, make_user
from tests.dashboard.story import TYPO, Story, failure

#: Names without a page: actions, streams, endpoints for machines.
NO_PAGES = {
    "api-audit-export", "api-reveal", "reveal", "reveal-dialog",
    "acknowledge-alert", "add-agent", "add-channel", "api-acknowledge-alert", "api-agent",
    "api-discard", "api-redrive", "discard",
    "assign-group", "delete-owner-rule", "own-alerts", "save-filter", "save-owner-rule",
    "delete-channel", "delete-rule", "remove-agent",
    "save-rule", "send-alert-again", "set-limits", "test-channel",
    "act-on-group", "act-on-groups", "api-act-on-group", "api-act-on-groups",
    "api-act-on-quarantine", "api-cancel-command", "api-dismiss-many", "api-docs",
    "add-subscription", "api-event-subscription", "api-replay-events", "delete-subscription",
    "replay-subscription",
    "api-feed-ndjson", "api-feed-parquet", "api-feed-sse", "api-notes",
    "api-resume-many", "api-token",
    "api-unknown", "api-unversioned",
    "cancel-command", "change-account", "create-account", "create-token",
    "grant-role", "revoke-token", "sign-on", "sign-on-callback", "unlock",
    "dismiss-entry", "dismiss-many", "dismiss-task", "export", "healthz", "live", "login",
    "logout", "metrics", "mute-group", "note-on-command", "note-on-group", "note-on-task", "pause",
    "pause-key", "pause-pipeline", "resume-pipeline",
    "put-back", "readyz", "restart", "restart-pipeline", "resume", "resume-at", "resume-many",
    "schema", "set-policy", "shut-down", "shut-down-instance", "skip", "start", "start-rollout",
    "mend", "preview-redrive", "review-mend", "review-record", "start-redrive",
    "test-error", "withdraw-role",
    "api-test-dead-letter", "test-dead-letter", "test-record", "test-result",
}  # fmt: skip
#: Of the log and its partitions, in this transaction.
SCANS = """
SELECT coalesce(sum(seq_scan), 0) FROM pg_stat_xact_user_tables
WHERE relname ~ '^(event|batch)(_[0-9]+|_default)?$'
"""
#: Sessions and roles, positions and lags, health, once in some seconds the number of problems in
#: the title; and what each shows, on the page of a pipeline in five charts. One is a savepoint in
#: the transaction of the test.
MOST = 48


@pytest.fixture(autouse=True)
def no_extended_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extend no session in one of two rounds that are compared."""
    monkeypatch.setattr(session, "EXTEND_SECONDS", math.inf)


def urls(story: Story, task: str, command: UUID) -> Iterator[tuple[str, str]]:
    """Yield the URL of every page and list, with its name; of each of its tabs, too."""
    app, cause = story.application, TYPO.fingerprint
    dead_letter = queries.dead_letters(queries.DeadLetterFilter(application=app), limit=1).rows[0]
    quarantined = queries.quarantine(limit=1).rows[0]
    failure = queries.failures(queries.FailureFilter(task=task), limit=1).rows[0]
    arguments: Mapping[str, list[object]] = {
        "application": [app],
        "policy-dialog": [app],
        "shut-down-dialog": [app],
        "start-dialog": [app],
        "task": [task],
        "task-history": [task],
        "skip-dialog": [task],
        "resume-at-dialog": [task],
        "mend-dialog": [task],
        "pause-dialog": [task],
        "restart-pipeline-dialog": [app],
        "pause-pipeline-dialog": [app],
        "resume-pipeline-dialog": [app],
        "pause-key-dialog": [app],
        "shut-down-instance-dialog": [app, story.instance],
        "dismiss-task-dialog": [task],
        "error": [app, cause],
        "mute-dialog": [app, cause],
        "assign-dialog": [app, cause],
        "command": [command],
        "dead-letter": [app, dead_letter.id],
        "dead-letter-record": [app, dead_letter.id],
        "edit-record-dialog": [app, dead_letter.id],
        "api-dead-letter-record": [app, dead_letter.id],
        "record": [app, failure.sequence],
        "api-record": [app, failure.sequence],
        "dead-letter-event": [app, dead_letter.sequence],
        "dismiss-entry-dialog": [quarantined.id],
        "pipeline": [app, story.pipeline],
        "api-pipeline": [app, story.pipeline],
        "api-pipeline-series": [app, story.pipeline],
        "api-pipeline-runs": [app, story.pipeline],
        "api-application": [app],
        "api-dead-letter": [app, dead_letter.id],
        "api-instances": [app],
        "api-instance": [app, story.instance],
        "api-application-runs": [app],
        "api-task": [task],
        "api-error": [app, cause],
        "api-group-history": [app, cause],
        "api-error-fields": [app, cause],
        "api-command": [command],
    }
    tabs = {
        "application": [f"tab={tab}" for tab in TABS],
        "task-history": [f"view={view}" for view in HISTORY_FORMS],
        "error": [f"tab={tab}" for tab in ERROR_TABS],
        "overview": ["range=30d", "range=7d"],
        "held": [f"application={app}"],
        "search": ["q=d", "q=position:151974"],
        "tasks": [f"application={app}&state=PAUSED", "owner=ana"],
        "errors": ["owner=ana"],
    }
    needs = {
        "policy-dialog": f"?pipeline={story.pipeline}&stage=deserialize",
        "restart-pipeline-dialog": f"?pipeline={story.pipeline}",
        "pause-pipeline-dialog": f"?pipeline={story.pipeline}",
        "resume-pipeline-dialog": f"?pipeline={story.pipeline}",
        "pause-key-dialog": f"?pipeline={story.pipeline}",
        "resume-many-dialog": f"?application={app}",
        "rollout-dialog": f"?application={app}",
        "discard-dialog": f"?application={app}",
        "redrive-dialog": f"?record={app}/{dead_letter.id}",
        "api-records": "?q=position:151974",
        "filter-dialog": "?page=errors",
        "groups-dialog": f"?act=RESOLVE&group={app}/{cause}",
    }
    names = {name for name in get_resolver().reverse_dict if isinstance(name, str)} - NO_PAGES
    for name in sorted(names):
        url = reverse(name, args=arguments.get(name, [])) + needs.get(name, "")
        yield name, url
        yield from ((f"{name}?{query}", f"{url}?{query}") for query in tabs.get(name, ()))


def asked(
    client: Client,
    found: Mapping[str, str],
    flights: Story,
    *,
    after: Callable[[str], None] = lambda name: None,
) -> dict[str, int]:
    """Return the number of statements of each URL; call `after` with the name of each."""
    counts = {}
    attention._kept.clear()
    for name, url in found.items():
        # A dialog without a live instance has a statement less; a heartbeat lasts 30 s.
        flights.beats()
        with CaptureQueriesContext(connection) as captured:
            status = client.get(url).status_code
        assert status in (200, 403), (name, status)
        counts[name] = len(captured)
        after(name)
    return counts


def test_the_number_of_queries_of_a_page_does_not_grow_with_the_data(
    flights: Story, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The title of the first page counts what needs attention, for all of them.
    monkeypatch.setattr(attention, "KEEP_SECONDS", 600.0)
    admin = logged_in(make_user("ada", "admin"))
    task = flights.pauses("JFK", held=2)
    # One cause stops two tasks: only then is its error group read.
    flights.pauses("LGA")
    flights.skips("EWR", 3)
    flights.resumes("EWR", flights.command(flights.pauses("EWR")))
    flights.send(b"not a batch")
    actions.note_on_task(task, actor="ana", text="hm")
    found = dict(urls(flights, task.digest, actions.resume_task(task.digest, actor="ana").id))
    few = asked(admin, found, flights)
    # A viewer has the same pages with fewer controls; each of them answers.
    assert max(asked(viewer, found, flights).values()) <= MOST

    more(flights)

    with counting_scans() as scans:
        assert asked(admin, found, flights, after=scans.note) == few
    assert scans.names == []
    assert {name: count for name, count in few.items() if count > MOST} == {}


class Scans:
    """The URLs for which the log was read from one end to the other."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._before = self._number()

    def note(self, name: str) -> None:
        """Note the name of a URL, if the log was read so since the one before."""
        number = self._number()
        if number != self._before:
            self.names.append(name)
        self._before = number

    def _number(self) -> int:
        with connection.cursor() as cursor:
            cursor.execute(SCANS)
            return int(cursor.fetchone()[0])


@contextmanager
def counting_scans() -> Iterator[Scans]:
    """Note which URLs read the log from one end to the other.

    Few rows are read so in any case; here only where no index would do. A plan prepared before
    knows nothing of that, and is not used.
    """
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL plan_cache_mode = force_custom_plan")
        yield Scans()
        cursor.execute("SET LOCAL enable_seqscan = on")


def more(flights: Story) -> None:
    """Add more of everything."""
    for number in range(6):
        gate = flights.pauses(f"gate-{number}", held=number + 1)
        actions.note_on_task(gate, actor="ana", text="hm")
        actions.resume_task(gate.digest, actor="ana")
        cause = failure("process:check", "checks.Wrong", f"wrong {number}", f"checks.py:{number}")
        flights.pauses(f"desk-{number}", cause=cause)
        flights.skips(f"desk-{number}", 2)
        hall = f"hall-{number}"
        flights.resumes(hall, flights.command(flights.pauses(hall)))
        flights.pauses(hall)
    for number in range(3):
        other = Story(application=f"other-{number}", checkpoint=str(uuid4()))
        other.starts()
        other.pauses("a", held=3)
        other.send(b"not a batch")
        more_of_it = Story(pipeline=f"more-{number}", instance=flights.instance)
        more_of_it.skips("a", 3)
        make_user(f"eve-{number}", "viewer")
        rule = actions.OwnerRuleForm(owner="ana", application=f"other-{number}", stage="*:check")
        actions.save_owner_rule(None, rule, actor="ada")
        actions.save_filter(f"eve-{number}", "tasks", f"filter-{number}", "key=a", shared=True)

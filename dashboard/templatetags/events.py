"""The display of events, acts and commands."""

from __future__ import annotations

from collections.abc import Mapping

from django import template
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from arrester.controlplane import queries
from arrester.controlplane.access.login_attempts import LoginAct
from arrester.dashboard.components import command_delivery
from arrester.dashboard.text import audit_text, event_text, failure_advice
from arrester.domain import failure_text
from arrester.domain.events import Failure, RecordFailed, StoredEvent
from arrester.domain.identity.names import TaskId, task_id
from arrester.domain.state import error_groups
from arrester.domain.state.states import GroupState

register = template.Library()
register.filter("act_about", audit_text.about)
register.filter("act_details", audit_text.details)
register.filter("act_url", audit_text.url)
register.filter("cause", failure_text.cause)
register.filter("event_title", event_text.title)
register.filter("extent", event_text.extent)
register.filter("sentence", event_text.sentence)
register.filter("steps", command_delivery.steps)
register.simple_tag(queries.applied_times)


@register.filter
def advice(failure: Failure | GroupState) -> SafeString:
    """Return what to do about a failure, its code marked as such; empty if nothing is known."""
    parts = failure_advice.advice(failure).split("`")
    marked = (
        format_html("<code>{}</code>", part) if number % 2 else part
        for number, part in enumerate(parts)
    )
    return format_html_join("", "{}", ((part,) for part in marked))


@register.filter
def subject(stored: StoredEvent) -> TaskId | None:
    """Return the task of an event; None if it has none."""
    key: str | None = getattr(stored.event.data, "task", None)
    if stored.event.run is None or not hasattr(stored.event.data, "task"):
        return None
    return task_id(stored.application, stored.event.run, key)


@register.filter
def error_url(stored: StoredEvent) -> str:
    """Return the address of the error group of an event, with its trace; empty if it has none."""
    data = stored.event.data
    failure = getattr(data, "failure", None)
    if failure is None:
        return ""
    url = reverse("error", args=[stored.application, failure.fingerprint])
    is_example = isinstance(data, RecordFailed) or error_groups.recordless(data) is not None
    return f"{url}?at={stored.sequence}" if is_example else url


@register.filter
def printed(stored: StoredEvent) -> str:
    """Return the display name of an event's task, or its pipeline."""
    task = subject(stored)
    if task is not None:
        return task.printed
    return stored.event.run.pipeline if stored.event.run else stored.application


@register.simple_tag
def about(stored: StoredEvent, causes: Mapping[tuple[str, str], GroupState]) -> str:
    """Return the subject of an act; for an error its title, which is clearer than its
    fingerprint."""
    fingerprint = getattr(stored.event.data, "fingerprint", None)
    cause = causes.get((stored.application, fingerprint)) if fingerprint else None
    return audit_text.about(stored) if cause is None else failure_text.title(cause)


@register.filter
def change_words(act: str) -> str:
    """Return an act on an account, on alerts or of a log-in: `Account created`, `Logged in`."""
    words = act.replace("_", " ")
    return words.capitalize() if "_" in act or act in list(LoginAct) else f"Account {words.lower()}"

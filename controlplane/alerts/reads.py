"""Alerts, messages, channels and rules, for pages and REST."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

import msgspec
from django.db.models import Q

from arrester.controlplane.alerts.causes import AlertCause
from arrester.controlplane.alerts.text import MessageText
from arrester.controlplane.domain.errors import NotFound
from arrester.controlplane.domain.state.states import TaskState
from arrester.controlplane.models import Alert, AlertChannel, AlertMessage, AlertRule
from arrester.controlplane.queries import paging
from arrester.controlplane.queries.paging import Page

#: The most channels and rules of a page.
MOST = 500


class SentMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message with its title."""

    message: AlertMessage
    title: str


def alerts(
    application: str | None = None,
    *,
    open: bool = False,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[Alert]:
    """Return alerts, newest first; with `open` only those that last, the critical ones first."""
    found = Alert.objects.order_by("-opened_at", "-id")
    if application is not None:
        found = found.filter(application=application)
    if open:
        found = found.filter(resolved_at=None).order_by("-critical", "-opened_at", "-id")
    before = paging.unpack(cursor, tuple[bool, datetime, int])
    if before is not None:
        critical, moment, id = before
        later = Q(opened_at__lt=moment) | Q(opened_at=moment, id__lt=id)
        found = found.filter(
            Q(critical__lt=critical) | Q(later, critical=critical) if open else later
        )
    rows = [*found[: paging.checked(limit) + 1]]
    return paging.page(rows, limit=limit, key=lambda each: (each.critical, each.opened_at, each.id))


def messages(*, limit: int = 50) -> list[SentMessage]:
    """Return the newest messages."""
    return _titled(AlertMessage.objects.order_by("-created_at", "-id")[:limit])


def messages_of(ids: Iterable[int]) -> dict[int, list[SentMessage]]:
    """Return the messages about some alerts, oldest first."""
    wanted = {*ids}
    by_alert: dict[int, list[SentMessage]] = defaultdict(list)
    found = AlertMessage.objects.filter(alerts__overlap=[*wanted]).order_by("created_at", "id")
    for each in _titled(found):
        for id in wanted.intersection(each.message.alerts):
            by_alert[id].append(each)
    return by_alert


def messages_about_stop(task: TaskState) -> list[SentMessage]:
    """Return the messages about the present stop of a task, oldest first."""
    since = task.first_stopped
    if since is None or task.failure is None:
        return []
    lasting = Q(resolved_at=None) | Q(resolved_at__gt=since)
    ids = Alert.objects.filter(
        lasting,
        cause__in=(AlertCause.TASKS_PAUSED.value, AlertCause.TASKS_DEAD.value),
        application=task.id.application,
        pipeline=task.id.pipeline,
        fingerprint=task.failure.fingerprint,
    ).values_list("id", flat=True)
    found = AlertMessage.objects.filter(alerts__overlap=[*ids], created_at__gt=since)
    return _titled(found.order_by("created_at", "id"))


def channels() -> list[AlertChannel]:
    """Return all channels by name."""
    return [*AlertChannel.objects.order_by("name")[:MOST]]


def rules() -> list[AlertRule]:
    """Return all rules by name."""
    return [*AlertRule.objects.select_related("channel", "escalate_to").order_by("name")[:MOST]]


def rule(id: int) -> AlertRule:
    """Return a rule; raise NotFound."""
    found = AlertRule.objects.select_related("channel", "escalate_to").filter(id=id).first()
    if found is None:
        raise NotFound(f"there is no alert rule {id}")
    return found


def _titled(found: Iterable[AlertMessage]) -> list[SentMessage]:
    return [SentMessage(message=each, title=MessageText.decode(each.text).title) for each in found]

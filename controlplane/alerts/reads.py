"""Alerts, messages, channels and rules, for pages and REST."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from django.db.models import Q, QuerySet

from arrester.controlplane import queries
from arrester.controlplane.alerts.text import MessageKind, MessageText
from arrester.controlplane.models import Alert, AlertChannel, AlertMessage, AlertRule
from arrester.controlplane.queries import paging
from arrester.controlplane.queries.conditions.causes import AlertCause
from arrester.controlplane.queries.paging import Page
from arrester.domain.errors import NotFound
from arrester.domain.events import (
    StoredEvent,
    TaskDied,
    TaskDismissed,
    TaskPaused,
    TaskRestarted,
    TaskResumed,
)
from arrester.domain.identity.names import TaskId
from arrester.domain.state.states import TaskState

#: The most channels and rules of a page.
MOST = 500
_STOPS = (TaskPaused, TaskDied)
_OF_STOPS = (AlertCause.TASKS_PAUSED, AlertCause.TASKS_DEAD, AlertCause.PIPELINE_DEAD)


class SentMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message with its title."""

    message: AlertMessage
    title: str


class _Stop(msgspec.Struct, frozen=True, kw_only=True):
    """A stop in the history of a task."""

    sequence: int
    begin: datetime
    #: When it ended; None: it lasts.
    end: datetime | None
    #: The error group of its cause; None: a person paused the task.
    fingerprint: str | None


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
    name = "open alerts" if open else "alerts"
    before = paging.unpack(cursor, tuple[bool, datetime, int], of=name)
    if before is not None:
        critical, moment, id = before
        later = Q(opened_at__lt=moment) | Q(opened_at=moment, id__lt=id)
        found = found.filter(
            Q(critical__lt=critical) | Q(later, critical=critical) if open else later
        )
    rows = [*found[: paging.checked(limit) + 1]]
    return paging.page(
        rows, of=name, limit=limit, key=lambda each: (each.critical, each.opened_at, each.id)
    )


def messages(*, limit: int = 50, until: UUID | None = None) -> list[SentMessage]:
    """Return the newest messages; those up to one of them, and the next older ones, if it is given.

    An unknown one changes nothing.
    """
    found = AlertMessage.objects.exclude(kind=MessageKind.EVENTS.value)
    found = found.order_by("-created_at", "-id")
    begin = None if until is None else AlertMessage.objects.filter(id=until).first()
    if begin is not None:
        earlier = Q(created_at__lt=begin.created_at)
        found = found.filter(earlier | Q(created_at=begin.created_at, id__lte=begin.id))
    return _titled(found[:limit])


def messages_of(ids: Iterable[int]) -> dict[int, list[SentMessage]]:
    """Return the messages about some alerts, oldest first."""
    wanted = {*ids}
    by_alert: dict[int, list[SentMessage]] = defaultdict(list)
    for each in _titled(_about(wanted)):
        for id in wanted.intersection(each.message.alerts):
            by_alert[id].append(each)
    return by_alert


def messages_about_stop(task: TaskState) -> list[SentMessage]:
    """Return the messages about the present stop of a task, oldest first."""
    since = task.first_stopped
    if since is None or task.failure is None:
        return []
    ids = [id for id, _ in _alerts_about(task.id, [task.failure.fingerprint], since)]
    return _titled(_about(ids).filter(created_at__gt=since))


def messages_by_stop(
    task: TaskId, events: Sequence[StoredEvent], *, cursor: str | None
) -> dict[int, list[SentMessage]]:
    """Return the messages about each stop in a page of a task's history, oldest first.

    The keys are the sequences of the stops. `events` are newest first; `cursor` is the page's.
    """
    after = paging.unpack(cursor, int, of=paging.OF_TASK) or 0
    newer = queries.event_if_kept(task.application, after)
    stops = [*_stops(events, None if newer is None else newer.event.occurred_at)]
    if not stops:
        return {}
    since = stops[-1].begin
    alerts = _alerts_about(task, [each.fingerprint or "" for each in stops], since)
    found = _titled(_about(id for id, _ in alerts).filter(created_at__gt=since))
    by_stop: dict[int, list[SentMessage]] = defaultdict(list)
    stop_of: dict[UUID, int] = {}
    for sent in found:
        # A message that escalates or ends an alert belongs to the first one about it.
        sequence = stop_of.get(sent.message.about or sent.message.id)
        if sequence is None:
            fingerprints = {name for id, name in alerts if id in sent.message.alerts}
            sequence = _stop_at(stops, sent.message.created_at, fingerprints)
        if sequence is not None:
            stop_of[sent.message.id] = sequence
            by_stop[sequence].append(sent)
    return dict(by_stop)


def _stops(events: Sequence[StoredEvent], end: datetime | None) -> Iterator[_Stop]:
    """Yield the stops among events, newest first; `end` is the time of the next newer event."""
    for stored in events:
        at, data = stored.event.occurred_at, stored.event.data
        if isinstance(data, _STOPS):
            fingerprint = None if data.failure is None else data.failure.fingerprint
            yield _Stop(sequence=stored.sequence, begin=at, end=end, fingerprint=fingerprint)
        if isinstance(data, (*_STOPS, TaskResumed, TaskRestarted, TaskDismissed)):
            end = at


def _stop_at(stops: Sequence[_Stop], at: datetime, fingerprints: set[str | None]) -> int | None:
    """Return the sequence of the stop that lasted at a time, if it has one of some causes."""
    for stop in stops:
        if stop.begin < at and (stop.end is None or at <= stop.end):
            about_task = None in fingerprints
            return stop.sequence if about_task or stop.fingerprint in fingerprints else None
    return None


def _alerts_about(
    task: TaskId, fingerprints: Sequence[str], since: datetime
) -> list[tuple[int, str | None]]:
    """Return the alerts about a task that lasted after a time, with the error that stopped it.

    Without an error it is about this task alone: a command expired, or its record failed again.
    """
    stopped = Q(
        cause__in=[each.value for each in _OF_STOPS],
        pipeline=task.pipeline,
        fingerprint__in=fingerprints,
    )
    lasting = Q(resolved_at=None) | Q(resolved_at__gt=since)
    found = Alert.objects.filter(
        lasting, stopped | Q(subject=task.digest), application=task.application
    )
    return [*found.values_list("id", "fingerprint")]


def _about(ids: Iterable[int]) -> QuerySet[AlertMessage]:
    return AlertMessage.objects.filter(alerts__overlap=[*ids]).order_by("created_at", "id")


def channels() -> list[AlertChannel]:
    """Return all channels that rules may send to, by name."""
    return [*AlertChannel.objects.filter(subscription=None).order_by("name")[:MOST]]


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

"""The text of a message: readable on a phone, however many alerts it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec
from django.conf import settings

from arrester.controlplane import models
from arrester.controlplane.queries.conditions.causes import AlertCause
from arrester.domain.visible_text import visible

#: The alerts of one message that are described; the others are counted by cause.
DESCRIBED = 10
#: The causes in the title of several alerts.
COUNTED = 4
#: The number of such an alert is that of its tasks.
_OF_TASKS = (AlertCause.TASKS_DEAD, AlertCause.TASKS_PAUSED)


class MessageKind(StrEnum):
    """The kinds of messages."""

    FIRED = "FIRED"
    ESCALATED = "ESCALATED"
    RESOLVED = "RESOLVED"
    TEST = "TEST"
    #: Events of the log, for a subscription; deleted once it is accepted.
    EVENTS = "EVENTS"


class AlertText(msgspec.Struct, frozen=True, kw_only=True):
    """One alert in a message."""

    id: int
    cause: str
    critical: bool
    application: str
    title: str
    detail: str
    count: int
    since: datetime
    resolved_at: datetime | None
    url: str


class MessageText(msgspec.Struct, frozen=True, kw_only=True):
    """A message: its title, the described alerts, and the number of others by cause."""

    kind: MessageKind
    title: str
    alerts: tuple[AlertText, ...]
    others: dict[str, int] = {}
    url: str

    def encode(self) -> str:
        """Return the message as JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> MessageText:
        """Return the message of a stored text."""
        return msgspec.json.decode(text, type=cls)


def compose(kind: MessageKind, alerts: Sequence[models.Alert]) -> MessageText:
    """Return the message about alerts: the critical ones first, then the oldest.

    Applications choose parts of the texts: no text has lines or directions of its own.
    """
    ordered = sorted(alerts, key=lambda each: (not each.critical, each.since, each.id))
    described = ordered[:DESCRIBED]
    return MessageText(
        kind=kind,
        title=_line(_title(kind, ordered)),
        alerts=tuple(_text(each) for each in described),
        others=dict(Counter(AlertCause(each.cause).label for each in ordered[DESCRIBED:])),
        url=_url("/alerts"),
    )


def test_message(channel: str, actor: str) -> MessageText:
    """Return a message that tests a channel."""
    return MessageText(
        kind=MessageKind.TEST,
        title=_line(f"Arrester: test of channel {channel}, requested by {actor}"),
        alerts=(),
        url=_url("/alerts"),
    )


def body(message: MessageText) -> str:
    """Return the message as lines of text."""
    parts = [_paragraph(each) for each in message.alerts]
    if message.others:
        others = ", ".join(f"{label} ({count:,})" for label, count in message.others.items())
        parts.append(f"And {sum(message.others.values()):,} more: {others}")
    if len(message.alerts) != 1 or message.others:
        parts.append(f"All alerts: {message.url}")
    return "\n\n".join(parts)


def _paragraph(alert: AlertText) -> str:
    since = f"{alert.since:%Y-%m-%d %H:%M:%S} UTC"
    times = f"Critical, since {since}" if alert.critical else f"Since {since}"
    if alert.resolved_at is not None:
        times += f", resolved {alert.resolved_at:%H:%M:%S} UTC"
    return "\n".join(filter(None, [alert.title, alert.detail, times, alert.url]))


def _text(alert: models.Alert) -> AlertText:
    return AlertText(
        id=alert.id,
        cause=alert.cause,
        critical=alert.critical,
        application=alert.application,
        title=_line(alert.title),
        detail=_line(alert.detail),
        count=alert.count,
        since=alert.since,
        resolved_at=alert.resolved_at,
        url=_url(alert.path),
    )


def _title(kind: MessageKind, alerts: Sequence[models.Alert]) -> str:
    prefix = {
        MessageKind.RESOLVED: "Resolved: ",
        MessageKind.ESCALATED: "No action yet: ",
    }.get(kind, "")
    if len(alerts) == 1:
        return f"{prefix}{alerts[0].title}"
    names = sorted({each.application for each in alerts if each.application})
    where = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{prefix}{f'{where}: ' if where else ''}{', '.join(_counted(alerts))}"


def _counted(alerts: Sequence[models.Alert]) -> list[str]:
    """Return what alerts are about with numbers, the most urgent first: `200 tasks PAUSED`."""
    numbers: Counter[AlertCause] = Counter()
    for each in alerts:
        cause = AlertCause(each.cause)
        numbers[cause] += each.count if cause in _OF_TASKS else 1
    causes = sorted(numbers, key=[*AlertCause].index)
    named = [cause.counted(numbers[cause]) for cause in causes[:COUNTED]]
    return [*named, *(["others"] if len(causes) > COUNTED else [])]


def _line(text: str) -> str:
    return visible(" ".join(text.split()))


def _url(path: str) -> str:
    return f"{settings.ENVIRONMENT.url}{path}"

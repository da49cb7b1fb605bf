"""Open and resolve alerts by the present conditions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec
from django.db import DataError, IntegrityError, transaction

from arrester.controlplane.models import Alert
from arrester.controlplane.queries import conditions
from arrester.controlplane.queries.conditions.condition import Condition, Key
from arrester.controlplane.views import row_mapping
from arrester.domain.commands.reactions import is_instance
from arrester.domain.state.states import ApplicationStatus
from arrester.domain.visible_text import escaped

log = logging.getLogger(__name__)
#: The largest number that PostgreSQL stores.
_MOST = 2**63 - 1
#: An alert is resolved when its condition was absent for so long, and its record is not tried
#: again: a task that is resumed and fails again is the same alert.
RESOLVE_AFTER = timedelta(seconds=15)
_SHOWN = ["title", "detail", "path", "count", "absent_since"]


def evaluate(*, now: datetime) -> None:
    """Make the open alerts those of the present conditions. Call it under the lock of alerts."""
    found = conditions.find(now=now)
    shut_down = _shut_down_by_people()
    present = {
        each.key: each
        for each in map(_storable, found.conditions)
        if each.cause.alerts and each.application not in shut_down
    }
    lasting: set[Key] = set()
    changed: list[Alert] = []
    for alert in Alert.objects.filter(resolved_at=None):
        key = (alert.cause, alert.application, alert.subject)
        lasting.add(key)
        is_retried = key in found.retried and alert.application not in shut_down
        if key in present:
            has_changed = _update(alert, present[key])
        else:
            is_known = found.is_known(alert.cause, alert.application)
            has_changed = is_known and not is_retried and _absent(alert, now)
        if has_changed:
            changed.append(alert)
    _store(changed, _opened(present.values(), lasting, now))


def _store(changed: Sequence[Alert], opened: Sequence[Alert]) -> None:
    """Store alerts; those of an application that PostgreSQL refuses affect no other application."""
    try:
        _write(changed, opened)
    except (DataError, IntegrityError) as exc:
        names = sorted({each.application for each in (*changed, *opened)})
        if len(names) == 1:
            log.error("%s: its alerts cannot be stored: %s", names[0] or "server", exc)
            return
        for name in names:
            _store(
                [each for each in changed if each.application == name],
                [each for each in opened if each.application == name],
            )


def _write(changed: Sequence[Alert], opened: Sequence[Alert]) -> None:
    with transaction.atomic():
        Alert.objects.bulk_update(changed, [*_SHOWN, "resolved_at"], batch_size=500)
        Alert.objects.bulk_create(opened, batch_size=500)


def _storable(condition: Condition) -> Condition:
    """Return a condition whose values PostgreSQL accepts: applications report any values."""
    fields = msgspec.structs.asdict(condition)
    texts = {
        name: value.replace("\0", escaped("\0"))
        for name, value in fields.items()
        if isinstance(value, str) and "\0" in value
    }
    count = min(condition.count, _MOST)
    if not texts and count == condition.count:
        return condition
    return msgspec.structs.replace(condition, **texts, count=count)


def _shut_down_by_people() -> set[str]:
    """Return the applications that a person shut down: until they are started again, their
    conditions are no alerts."""
    latched = row_mapping.APPLICATIONS.load_readable("status = %s", [ApplicationStatus.LATCHED])
    return {each.name for each in latched if each.actor and not is_instance(each.actor)}


def _update(alert: Alert, condition: Condition) -> bool:
    """Give an alert the present values of its condition; return whether any has changed."""
    before = [getattr(alert, name) for name in _SHOWN]
    alert.title, alert.detail = condition.title, condition.detail
    alert.path, alert.count = condition.path, condition.count
    alert.absent_since = None
    return before != [getattr(alert, name) for name in _SHOWN]


def _absent(alert: Alert, now: datetime) -> bool:
    """Record that the condition is absent; return whether anything has changed."""
    if alert.absent_since is None:
        alert.absent_since = now
        return True
    if now - alert.absent_since < RESOLVE_AFTER:
        return False
    alert.resolved_at = alert.absent_since
    return True


def _opened(present: Iterable[Condition], lasting: set[Key], now: datetime) -> list[Alert]:
    return [
        Alert(
            cause=each.cause.value,
            critical=each.cause.critical,
            application=each.application,
            subject=each.subject,
            title=each.title,
            detail=each.detail,
            path=each.path,
            count=each.count,
            pipeline=each.pipeline,
            fingerprint=each.fingerprint,
            since=each.since,
            opened_at=now,
        )
        for each in present
        if each.key not in lasting
    ]

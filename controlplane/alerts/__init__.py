"""Alerts: find what needs a person, and send it to the channels of the rules.

The conditions are read from the views every few seconds, so nothing that still is wrong is missed,
whichever process died. `update` makes alerts of them and puts messages into the outbox, in one
transaction; `outbox.send_pending` sends them.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from arrester.controlplane import store
from arrester.controlplane.alerts.evaluation import evaluate
from arrester.controlplane.alerts.routing import route
from arrester.controlplane.models import Alert, AlertMessage

#: The most that a statement may take: a slow one must not hold up the alerts of all applications.
STATEMENT_SECONDS = 30.0


def update(*, now: datetime) -> bool:
    """Open and resolve alerts, and add the messages that follow; return False if another worker
    does."""
    with transaction.atomic(durable=True):
        if not store.try_alert_lock():
            return False
        store.limit_statements(STATEMENT_SECONDS)
        evaluate(now=now)
        route(now=now)
    return True


def forget(*, now: datetime, days: int) -> None:
    """Delete the resolved alerts and the messages that are older than the retention."""
    before = now - timedelta(days=days)
    Alert.objects.filter(resolved_at__lt=before).delete()
    AlertMessage.objects.filter(created_at__lt=before, settled=True).delete()

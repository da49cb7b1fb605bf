"""The Celery tasks, thin. Losing any of their messages, or all, costs one sweep of `wake`."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from celery import current_app, shared_task
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore

from controlplane import actions, broker, ingest, retention, store
from controlplane import relay as outbox

log = logging.getLogger(__name__)
DAYS_AHEAD = 8


@shared_task(name="arrester.drain")
def drain(application: str) -> None:
    """Fold what waits; come back while there is more, so that others get their turn."""
    if ingest.drain(application, may_linger=_nobody_waits).more:
        drain.delay(application)


def _nobody_waits() -> bool:
    """Whether no message waits for a process."""
    return not broker.client().llen(current_app.conf.task_default_queue)


@shared_task(name="arrester.relay")
def relay(application: str) -> None:
    """Say again what agents have to know."""
    outbox.relay(application)


@shared_task(name="arrester.sweep")
def sweep() -> None:
    """Repair what was lost on the way to the agents, and show that a worker works."""
    actions.sighted("worker")
    for stream in store.known():
        try:
            outbox.relay(stream.application)
        except broker.ResponseError:
            # A key of another type in the place of one of ours is no other application's matter.
            log.exception("%s: Redis refuses to relay", stream.application)


@shared_task(name="arrester.watch")
def watch() -> None:
    """Tell what time made true."""
    actions.watch()


@shared_task(name="arrester.housekeeping")
def housekeeping() -> None:
    """Make the log's partitions ahead, drop the days that are over and sessions that have ended.

    It has a queue and a process of its own, waits for nobody, and one runs at a time.
    """
    store.ensure_partitions(datetime.now(UTC).date(), days=DAYS_AHEAD)
    environment = settings.ENVIRONMENT
    with store.keeping_house() as mine:
        if mine:
            SessionStore.clear_expired()
            retention.retain(days=environment.retention_days, replay_days=environment.replay_days)

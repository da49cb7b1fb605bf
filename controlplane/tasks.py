"""The Celery tasks, thin. Losing any of their messages, or all, costs one sweep of `wake`."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from celery import Task, shared_task
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore

from controlplane import actions, asking, broker, ingest, retention, store
from controlplane import relay as outbox
from controlplane.domain.errors import BrokenState

log = logging.getLogger(__name__)
DAYS_AHEAD = 8


@shared_task(name="arrester.drain", bind=True)
def drain(self: Task[Any, Any], application: str) -> None:
    """Fold what waits; come back while there is more, so that others get their turn.

    A drain that raises leaves the stream's mark until it is over: that is how soon it is tried
    again, and no sooner.
    """
    if asking.is_void(application, self.request.id or ""):
        return
    if ingest.drain(application, may_linger=asking.nobody_waits).more:
        # It does not expire: until its turn comes nobody else asks.
        drain.apply_async(args=(application,), task_id=asking.replace(application))


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
        except (broker.ResponseError, BrokenState):
            # A key of another type in the place of one of ours, or a row that cannot be read, is
            # no other application's matter.
            log.exception("%s: nothing is relayed", stream.application)


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
    actions.sighted("housekeeper")

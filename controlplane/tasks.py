"""The Celery tasks, thin. Losing any of their messages, or all, costs one sweep of `wake`."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from celery import Task, shared_task
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore

from arrester.controlplane import actions, redis_client, store
from arrester.controlplane.celery import HOUSEKEEPING
from arrester.controlplane.history import retention, state_at_position
from arrester.controlplane.ingest import drain as stream_drain
from arrester.controlplane.ingest import drain_requests
from arrester.controlplane.outbound import command_outbox as outbox

log = logging.getLogger(__name__)
DAYS_AHEAD = 8
#: So many messages that wait, and so long, before the fold keeps states itself.
MOST_ASKED, EXPIRE_SECONDS = 100, 10


@shared_task(name="arrester.drain", bind=True)
def drain(self: Task[Any, Any], application: str) -> None:
    """Fold what waits; come back while there is more, so that others get their turn.

    A drain that raises leaves the stream's mark until it is over: that is how soon it is tried
    again, and no sooner.
    """
    if drain_requests.is_void(application, self.request.id or ""):
        return
    done = stream_drain.drain(
        application, may_linger=drain_requests.nobody_waits, ask_keeper=_ask_keeper
    )
    if done.more:
        # It does not expire: until its turn comes nobody else asks.
        drain.apply_async(args=(application,), task_id=drain_requests.replace(application))


@shared_task(name="arrester.keep")
def keep(application: str) -> None:
    """Keep the application's states beside its folds; what is late they do themselves."""
    state_at_position.keep_if_due(application)


def _ask_keeper(application: str) -> None:
    """Ask for states to be kept, unless whoever is to do it is busy with something else."""
    if redis_client.client().llen(HOUSEKEEPING) < MOST_ASKED:
        keep.apply_async(args=(application,), retry=False, expires=EXPIRE_SECONDS)


@shared_task(name="arrester.relay")
def relay(application: str) -> None:
    """Say again what agents have to know."""
    outbox.relay(application)


@shared_task(name="arrester.sweep")
def sweep() -> None:
    """Repair what was lost on the way to the agents, and show that a worker works."""
    actions.sighted("worker")
    for stream in store.all_streams():
        try:
            outbox.relay(stream.application)
        except redis_client.OWN_TROUBLE:
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
    with store.try_housekeeping_lock() as mine:
        if mine:
            SessionStore.clear_expired()
            retention.retain(days=environment.retention_days, replay_days=environment.replay_days)
    actions.sighted("housekeeper")

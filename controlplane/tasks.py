"""The Celery tasks. If any of their messages is lost, a sweep of `wake` repeats it."""

from __future__ import annotations

import logging
import random
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Task, shared_task
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore

from arrester.controlplane import actions, alerts, dead_letter_records, store
from arrester.controlplane.alerts import outbox as alert_outbox
from arrester.controlplane.alerts import subscriptions
from arrester.controlplane.celery_workers import HOUSEKEEPING
from arrester.controlplane.history import audit_verification, retention, state_at_position
from arrester.controlplane.ingest import fold_requests
from arrester.controlplane.ingest import fold_stream as stream_folds
from arrester.controlplane.outbound import agent_users, periodic_locks, quota_check
from arrester.controlplane.outbound import command_outbox as outbox
from arrester.controlplane.redis import redis_client

log = logging.getLogger(__name__)
DAYS_AHEAD = 8
#: The most waiting messages, and their longest age, before the fold makes snapshots itself.
MAX_REQUESTS, EXPIRE_SECONDS = 100, 10
#: The longest time in which failed records are indexed, so that housekeeping does not wait.
INDEX_SECONDS = 2
#: The same, for the events of one subscription.
DELIVER_SECONDS = 2


@shared_task(name="arrester.fold_stream", bind=True)
def fold_stream(self: Task[Any, Any], application: str) -> None:
    """Fold the waiting entries; continue in a new message if more are left, so that others have a
    turn.

    A fold that raises leaves the pending-fold key until it expires: it is repeated then, and not
    earlier.
    """
    if fold_requests.is_void(application, self.request.id or ""):
        return
    done = stream_folds.fold_stream(application, request_snapshot=_request_snapshot)
    if done.more:
        # The request does not expire: nothing else requests a fold until it runs.
        fold_stream.apply_async(args=(application,), task_id=fold_requests.replace(application))


@shared_task(name="arrester.keep")
def keep(application: str) -> None:
    """Make a due snapshot beside the folds; the fold makes late ones itself."""
    state_at_position.make_snapshot_if_due(application)


def _request_snapshot(application: str) -> None:
    _request(keep, application)


def request_index() -> None:
    """Request that new failed records are indexed, unless the housekeeper is busy."""
    _request(index_records)


def _request(task: Task[Any, Any], *arguments: str) -> None:
    """Send a message to the housekeeper, unless it is busy."""
    if redis_client.broker().llen(HOUSEKEEPING) < MAX_REQUESTS:
        task.apply_async(args=arguments, retry=False, expires=EXPIRE_SECONDS)


@shared_task(name="arrester.sweep")
def sweep() -> None:
    """Relay to all applications, publish the users of agents, and record that a worker runs."""
    actions.record_running("worker")
    with periodic_locks.try_lock("sweep") as is_free:
        if not is_free:
            return
        agent_users.try_publish()
        for stream in store.all_streams():
            try:
                outbox.relay(stream.application)
            except redis_client.APPLICATION_ERRORS:
                log.exception("%s: its relay failed", stream.application)


@shared_task(name="arrester.watch")
def watch() -> None:
    """Append the events that follow from the time."""
    with periodic_locks.try_lock("watch") as is_free:
        if is_free:
            actions.watch()


@shared_task(name="arrester.check_quotas")
def check_quotas() -> None:
    """Compare all applications with their quotas."""
    quota_check.check(now=datetime.now(UTC))


@shared_task(name="arrester.alert")
def alert() -> None:
    """Open and resolve alerts, and send the messages of each channel in a task of its own."""
    with periodic_locks.try_lock("alert") as is_free:
        if not is_free:
            return
        alerts.update(now=datetime.now(UTC))
    for channel in alert_outbox.channels_to_send(now=datetime.now(UTC)):
        send_alerts.apply_async(args=(channel,), retry=False, expires=EXPIRE_SECONDS)
    # One process sends to all of them, and a message that waits for a slow one expires.
    ids = subscriptions.ids()
    for id in random.sample(ids, len(ids)):
        deliver_events.apply_async(args=(id,), retry=False, expires=EXPIRE_SECONDS)


@shared_task(name="arrester.deliver_events")
def deliver_events(subscription: int) -> None:
    """Send new events to a webhook. A slow one does not delay folds: they have another queue."""
    subscriptions.deliver(subscription, seconds=DELIVER_SECONDS)


@shared_task(name="arrester.send_alerts")
def send_alerts(channel: int) -> None:
    """Send the waiting messages of a channel. A dead one delays no other channel."""
    alert_outbox.send_pending(channel)


@shared_task(name="arrester.verify_audit")
def verify_audit() -> None:
    """Verify the new entries of the audit, once a day all of them."""
    audit_verification.check(now=datetime.now(UTC))


@shared_task(name="arrester.read_dead_letter")
def read_dead_letter(application: str, id: str) -> None:
    """Read the record of a dead letter for the page that shows it."""
    dead_letter_records.fulfil(application, id)


@shared_task(name="arrester.index_records")
def index_records() -> None:
    """Index the failed records of all logs, some of each at a time.

    It continues in a new message if more are left, so that other tasks have a turn.
    """
    ends = time.monotonic() + INDEX_SECONDS
    streams = store.all_streams()
    while streams and time.monotonic() < ends:
        streams = [each for each in streams if store.index_records(each)]
    if streams:
        request_index()


@shared_task(name="arrester.housekeeping")
def housekeeping() -> None:
    """Create the coming partitions, drop expired days, ended sessions and old alerts.

    It has a queue and a process of its own, waits for nothing, and one runs at a time.
    """
    store.ensure_partitions(datetime.now(UTC).date(), days=DAYS_AHEAD)
    environment = settings.ENVIRONMENT
    with store.try_housekeeping_lock() as acquired:
        if acquired:
            SessionStore.clear_expired()
            days = retention.days_to_keep(
                days=environment.retention_days,
                gigabytes=environment.retention_gigabytes,
                today=datetime.now(UTC).date(),
            )
            retention.retain(days=days, replay_days=environment.replay_days)
            replayed = timedelta(days=environment.replay_days)
            actions.forget_requests(before=datetime.now(UTC) - replayed)
            alerts.forget(now=datetime.now(UTC), days=environment.retention_days)
    actions.record_running("housekeeper")

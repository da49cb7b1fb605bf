"""Drift check: compare the stored states of an instance's tasks with the instance's own, and
request a report if they differ.

Each heartbeat contains a hash of the task states. If it differs repeatedly while no events are in
transit, a report is requested; the answer is StateReported, an event like all others.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from datetime import datetime
from uuid import UUID, uuid4

import msgspec
from msgspec.structs import replace

from arrester.controlplane.redis import heartbeats, redis_client
from arrester.controlplane.views import row_mapping
from arrester.domain.events import Run
from arrester.domain.identity import redis_keys
from arrester.domain.state import drift
from arrester.domain.state.states import TaskStatus
from arrester.domain.wire.codec import Heartbeat

log = logging.getLogger(__name__)


def check(application: str, instances: Collection[UUID], *, now: datetime) -> list[UUID]:
    """Compare with the heartbeats of `instances`; return those that a report was requested from."""
    # Events may still wait to be folded: then a difference proves nothing.
    if not instances or not heartbeats.is_folded(application, now=now):
        return []
    return [
        id
        for id, received in heartbeats.read([(application, id) for id in instances]).items()
        if received.heartbeat is not None and _requests_report(application, id, received.heartbeat)
    ]


def _requests_report(application: str, instance: UUID, heartbeat: Heartbeat) -> bool:
    if heartbeat.standing is None:
        return False
    server_hash = _hash_of_tasks(application, heartbeat.runs)
    if server_hash is None:
        return False
    redis, key = redis_client.client(), redis_keys.drift(application, instance)
    before = redis_client.decode_json(redis.get(key), drift.Difference)
    after = drift.compare_hashes(
        before, agent_hash=heartbeat.standing, server_hash=server_hash, beat=heartbeat.at
    )
    if after is None:
        if before is not None:
            redis.delete(key)
        return False
    requests = after.is_report_due
    if requests:
        report = uuid4()
        after = replace(after, report_id=report)
        redis.set(
            redis_keys.report(application, instance), str(report), ex=redis_keys.REPORT_SECONDS
        )
        log.warning(
            "%s: task states of instance %s differ; a report is requested", application, instance
        )
    # After a request the key keeps its expiry. Then the count begins again, and if the hashes still
    # differ, another report is requested.
    requested_before = before is not None and before.report_id is not None and not requests
    expiry = None if requested_before else redis_keys.REPORT_SECONDS
    redis.set(key, msgspec.json.encode(after), keepttl=requested_before, ex=expiry)
    return requests


def _hash_of_tasks(application: str, runs: Iterable[Run]) -> str | None:
    """Return our hash of the tasks of `runs`; None if the newest run that we know is another
    one."""
    weights = []
    for run in runs:
        where = "application = %s AND pipeline = %s AND checkpoint = %s"
        line = [application, run.pipeline, run.checkpoint]
        newest = [thread.epoch for thread in row_mapping.THREADS.load(where, line)]
        if newest != [run.epoch]:
            return None
        stopped = f"{where} AND status <> %s"
        weights.append(
            drift.weight(row_mapping.TASKS.load(stopped, [*line, TaskStatus.RUNNING.value]))
        )
    return drift.state_hash(weights)

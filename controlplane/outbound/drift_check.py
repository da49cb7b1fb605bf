"""Drift check: compare our view of an instance's tasks with the instance's own, and request a
report if they differ.

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

from arrester.controlplane import redis_client
from arrester.controlplane.domain.events import Run
from arrester.controlplane.domain.identity import redis_keys
from arrester.controlplane.domain.state import drift
from arrester.controlplane.domain.state.states import TaskStatus
from arrester.controlplane.outbound import heartbeats
from arrester.controlplane.views import row_mapping

log = logging.getLogger(__name__)


def look(application: str, instances: Collection[UUID], *, now: datetime) -> list[UUID]:
    """Compare with the heartbeats of `instances`; return those that a report was requested from."""
    # Events may still wait to be folded: then a difference proves nothing.
    if not instances or not heartbeats.is_folded(application, now=now):
        return []
    heard = heartbeats.beats([(application, id) for id in instances]) or {}
    return [id for id, beat in heard.items() if _asks(application, id, beat)]


def _asks(application: str, instance: UUID, beat: heartbeats.Beat) -> bool:
    said = beat.said
    if said is None or said.standing is None:
        return False
    ours = _standing(application, said.runs)
    if ours is None:
        return False
    redis, key = redis_client.client(), redis_keys.drift(application, instance)
    before = _remembered(redis.get(key))
    after = drift.differing(before, theirs=said.standing, ours=ours, beat=said.at)
    if after is None:
        if before is not None:
            redis.delete(key)
        return False
    asks = after.lasts
    if asks:
        report = uuid4()
        after = replace(after, asked=report)
        redis.set(
            redis_keys.report(application, instance), str(report), ex=redis_keys.REPORT_SECONDS
        )
        log.warning(
            "%s: task states of instance %s differ; a report is requested", application, instance
        )
    # The interval grows no further after a request: if the answer does not help, it is requested
    # again.
    asked_before = before is not None and before.asked is not None and not asks
    text = msgspec.json.encode(after)
    if asked_before:
        redis.set(key, text, keepttl=True)
    else:
        redis.set(key, text, ex=redis_keys.REPORT_SECONDS)
    return asks


def _standing(application: str, runs: Iterable[Run]) -> str | None:
    """Return our hash of the tasks of `runs`; None if the newest run that we know is another
    one."""
    weights = []
    for run in runs:
        where = "application = %s AND pipeline = %s AND checkpoint = %s"
        line = [application, run.pipeline, run.checkpoint]
        newest = [thread.epoch for thread in row_mapping.THREADS.load(where, line)]
        if newest != [run.epoch]:
            return None
        stand = f"{where} AND status <> %s"
        weights.append(
            drift.weight(row_mapping.TASKS.load(stand, [*line, TaskStatus.RUNNING.value]))
        )
    return drift.standing(weights)


def _remembered(text: bytes | str | None) -> drift.Difference | None:
    try:
        return None if text is None else msgspec.json.decode(text, type=drift.Difference)
    except msgspec.DecodeError:
        return None

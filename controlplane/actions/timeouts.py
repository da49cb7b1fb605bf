"""Periodic checks: instances lost or found, commands expired, mutes ended."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from arrester.controlplane import models, redis_client, store
from arrester.controlplane.actions.transaction import advance
from arrester.controlplane.domain.commands.timeouts import watch as passing_of_time
from arrester.controlplane.domain.events import Event
from arrester.controlplane.domain.identity import redis_keys
from arrester.controlplane.domain.state import error_groups
from arrester.controlplane.domain.state.stream_state import StreamState
from arrester.controlplane.outbound import drift_check, heartbeats
from arrester.controlplane.views import projections

log = logging.getLogger(__name__)


def watch(*, now: datetime | None = None) -> int:
    """Append the events that follow from the time. Return how many."""
    now = now or datetime.now(UTC)
    patience = timedelta(seconds=redis_keys.LOST_AFTER_SECONDS)
    unbroken = heartbeats.look(now=now)
    told = 0
    for stream in store.all_streams():
        try:
            told += _watch(stream.application, now=now, may_declare_lost=unbroken >= patience)
        except redis_client.OWN_TROUBLE:
            log.exception("%s: its periodic checks failed", stream.application)
    return told


def sighted(*names: str) -> None:
    """Record that parts of the system (redis, wake, worker, housekeeper) are running."""
    now = datetime.now(UTC)
    for name in names:
        models.Sighting.objects.update_or_create(name=name, defaults={"at": now})


def expected(name: str) -> None:
    """Start to expect a part that runs rarely, so that a new system does not miss it."""
    models.Sighting.objects.get_or_create(name=name, defaults={"at": datetime.now(UTC)})


def _watch(application: str, *, now: datetime, may_declare_lost: bool) -> int:
    before = projections.standing(application)
    asked = before.instances.keys()
    heard = heartbeats.heard(application, asked)
    # The last events of a silent instance may still wait to be folded.
    sure = may_declare_lost and heartbeats.is_folded(application, now=now)

    def rule(state: StreamState) -> list[Event]:
        # Others may have started before we had the lock: they were not checked, so they are not
        # silent.
        new = state.instances.keys() - asked
        told = passing_of_time(state, heard=heard | new, may_declare_lost=sure, now=now)
        over = error_groups.over(state.groups.values(), now=now)
        return [*told, *(Event(occurred_at=now, data=data) for data in over)]

    # Evaluated twice: the lock is needed only if there are events, which is rare.
    told = len(rule(before))
    if told:
        advance(application, rule)
    drift_check.look(application, heard, now=now)
    return told

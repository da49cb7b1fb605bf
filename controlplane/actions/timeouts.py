"""Periodic checks: instances lost or found, commands expired, mutes and pauses ended; rollouts and
redrives advanced."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from arrester.controlplane import models, store
from arrester.controlplane.actions.redrives import advance_redrives
from arrester.controlplane.actions.rollouts import advance_rollouts
from arrester.controlplane.actions.timed_pauses import end_pauses
from arrester.controlplane.actions.transaction import advance
from arrester.controlplane.outbound import clock_check, drift_check
from arrester.controlplane.redis import heartbeats, reachability, redis_client
from arrester.controlplane.views import projections
from arrester.domain.commands import timeouts
from arrester.domain.events import Event
from arrester.domain.identity import redis_keys
from arrester.domain.state import error_groups
from arrester.domain.state.stream_state import StreamState

log = logging.getLogger(__name__)
#: Longer than a usual fold; the checks of an application whose stream is locked follow in the next
#: round.
LOCK_SECONDS = 1.0


def watch(*, now: datetime | None = None) -> int:
    """Append the events that follow from the time. Return how many."""
    now = now or datetime.now(UTC)
    expiry = timedelta(seconds=redis_keys.LOST_AFTER_SECONDS)
    reachable = reachability.check_redis(now=now)
    appended = 0
    for stream in store.all_streams():
        try:
            with store.waiting_at_most(LOCK_SECONDS):
                appended += _watch(
                    stream.application, now=now, may_declare_lost=reachable >= expiry
                )
                # Last, so that a broken one prevents no other check.
                advance_rollouts(stream.application, now=now)
                advance_redrives(stream.application, now=now)
        except store.StreamLocked:
            log.warning("%s: a fold is slow; its periodic checks follow", stream.application)
        except redis_client.APPLICATION_ERRORS:
            log.exception("%s: its periodic checks failed", stream.application)
    return appended


def record_running(*names: str) -> None:
    """Record that parts of the system (redis, wake, worker, housekeeper) are running."""
    now = datetime.now(UTC)
    for name in names:
        models.Sighting.objects.update_or_create(name=name, defaults={"at": now})


def expect(name: str) -> datetime:
    """Return when a part that runs rarely was last active.

    A part that was never active is expected from now on, so that a new system does not miss it.
    """
    now = datetime.now(UTC)
    sighting, _ = models.Sighting.objects.get_or_create(name=name, defaults={"at": now})
    return sighting.at


def _watch(application: str, *, now: datetime, may_declare_lost: bool) -> int:
    before = projections.current_states(application)
    checked = before.instances.keys()
    live = heartbeats.with_heartbeat(application, checked)
    # The last events of a silent instance may still wait to be folded.
    may_declare_lost = may_declare_lost and heartbeats.is_folded(application, now=now)

    def rule(state: StreamState) -> list[Event]:
        # Others may have started before we had the lock: they were not checked, so they are not
        # silent.
        new = state.instances.keys() - checked
        events = timeouts.timeout_events(
            state, alive=live | new, may_declare_lost=may_declare_lost, now=now
        )
        over = error_groups.expired_mutes(state.groups.values(), now=now)
        return [*events, *(Event(occurred_at=now, data=data) for data in over)]

    # Evaluated twice: the lock is needed only if there are events, which is rare.
    count = len(rule(before))
    if count:
        advance(application, rule)
    count += end_pauses(application, now=now)
    drift_check.check(application, live, now=now)
    clock_check.check(application, live)
    return count

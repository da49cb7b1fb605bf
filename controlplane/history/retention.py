"""Retention: store and verify the states at the new beginning of the log, then drop the days
before it. Counts for charts are kept longer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, date, datetime, timedelta

import msgspec
from django.db import transaction

from arrester.controlplane import models, store
from arrester.controlplane.history import rebuild, state_at_position
from arrester.controlplane.views import chart_buckets, dead_letters, flow, held_minutes
from arrester.domain.errors import ArresterError, BrokenState, NotVerified
from arrester.domain.state.stream_state import StreamState

log = logging.getLogger(__name__)
#: How far charts can look back.
CHART_HISTORY = timedelta(days=400)
#: The id of a batch has the time of its agent, whose clock may differ from ours by this much.
CLOCK_MARGIN = timedelta(days=2)
#: The unit of ARRESTER_RETENTION_GB, in bytes.
GIGABYTE = 10**9
#: How long a run waits for a fold that has a lock: the next run does what is left.
LOCK_SECONDS = 1.0
Report = Callable[[str], None]
#: Shows the progress for an application, whose events are read up to a log position.
ShowProgress = Callable[[str, int], AbstractContextManager[rebuild.Progress]]


class Retained(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run of retention."""

    #: The new beginnings of the logs of applications.
    bases: dict[str, int]
    dropped: store.Dropped
    #: Applications whose views are being rebuilt, or whose stream is locked: nothing is dropped
    #: before these are done.
    busy: tuple[str, ...] = ()


def show_nothing(_application: str, _position: int) -> AbstractContextManager[rebuild.Progress]:
    """Show no progress."""
    return nullcontext(rebuild.silent)


def days_to_keep(*, days: int, gigabytes: int, today: date) -> int:
    """Return how many past days of events are kept: at most `days`, of at most `gigabytes`.

    0 gigabytes: without limit. Today and yesterday are kept in any case.
    """
    if not gigabytes:
        return days
    size, oldest = 0, today
    for day, of_day in store.bytes_by_day():
        size += of_day
        if size > gigabytes * GIGABYTE:
            return max(1, min(days, (today - oldest).days))
        oldest = day
    return days


def retain(
    *,
    days: int,
    replay_days: int,
    now: datetime | None = None,
    report: Report = log.info,
    progress: ShowProgress = show_nothing,
) -> Retained:
    """Keep the events of the last `days` days, and the ids of batches for `replay_days`.

    Raises NotVerified if an application's base differs from its views, BrokenState if it cannot be
    read. Then nothing is dropped: a day holds the events of all applications. The bases of the
    others are made nevertheless. Neither a rebuild nor a slow fold is waited for: the next run
    drops the days.
    """
    now = now or datetime.now(UTC)
    before = now.date() - timedelta(days=days)
    bases, refused, busy = _make_bases(before, now=now, report=report, progress=progress)
    store.delete_old_entries(before=now - timedelta(days=days), at=now)
    if refused:
        raise refused[0]
    nothing = store.Dropped(partitions=0, bytes=0)
    if busy:
        return Retained(bases=bases, dropped=nothing, busy=tuple(busy))
    batches_before = min(before, (now - timedelta(days=replay_days) - CLOCK_MARGIN).date())
    try:
        with store.waiting_at_most(LOCK_SECONDS), transaction.atomic(durable=True):
            dropped = store.drop_days(before, batches_before=batches_before)
    except store.StreamLocked:
        report("a fold is slow; the next run drops the days")
        return Retained(bases=bases, dropped=nothing)
    # Folds wait only while days are dropped.
    store.delete_old_states()
    minutes_before = datetime.combine(before, datetime.min.time(), UTC)
    flow.forget(minutes_before=minutes_before, hours_before=now - CHART_HISTORY)
    held_minutes.forget(before=minutes_before)
    store.forget_blocks(minutes_before)
    if dropped.partitions:
        report(f"{dropped.partitions} partitions dropped, {dropped.bytes:,} bytes")
    return Retained(bases=bases, dropped=dropped)


def _make_bases(
    before: date, *, now: datetime, report: Report, progress: ShowProgress
) -> tuple[dict[str, int], list[ArresterError], list[str]]:
    """Make a base of each application; return their positions, the refusals, and the applications
    that are being rebuilt."""
    bases: dict[str, int] = {}
    refused: list[ArresterError] = []
    busy: list[str] = []
    for stream in store.all_streams():
        try:
            with store.try_maintenance_lock(stream.application) as acquired:
                if not acquired:
                    report(f"{stream.application}: its views are being rebuilt; nothing is dropped")
                    busy.append(stream.application)
                    continue
                with store.waiting_at_most(LOCK_SECONDS):
                    position = _make_base(stream.application, before, now=now, progress=progress)
        except store.StreamLocked:
            report(f"{stream.application}: a fold is slow; nothing is dropped")
            busy.append(stream.application)
            continue
        except (NotVerified, BrokenState) as exc:
            _record_refusal(stream.application, exc, now=now)
            refused.append(exc)
            continue
        models.RetentionRefusal.objects.filter(application=stream.application).delete()
        if position is not None:
            bases[stream.application] = position
            report(f"{stream.application}: the log begins at @{position:,}")
    return bases, refused, busy


def _record_refusal(application: str, refusal: ArresterError, *, now: datetime) -> None:
    """Record since when and why retention is refused."""
    log.error("%s", refusal)
    models.RetentionRefusal.objects.update_or_create(
        application=application,
        defaults={"reason": str(refusal)},
        create_defaults={"reason": str(refusal), "since": now},
    )


def _make_base(
    application: str, before: date, *, now: datetime, progress: ShowProgress
) -> int | None:
    """Make and verify a base at the last event before a day; return its position if it is new."""
    last, base = store.last_before(application, before), store.base(application)
    if last is None or last[0] <= base.position:
        _forget_buckets(application, before=now - CHART_HISTORY)
        return None
    position, received_at = last
    with progress(application, position) as show:
        derived = rebuild.derive(application, until=position, progress=show)
    # Snapshots are copies of the views: these are the states that pages have shown.
    shown = state_at_position.at(application, position)
    if _packed(shown) != _packed(derived.state):
        raise NotVerified(application, position)
    old = derived.buckets.split_before(now - CHART_HISTORY)
    with transaction.atomic(durable=True):
        store.lock(application)
        states = [*derived.stored_states(after=base.position), *old.deletions()]
        store.save_base(application, position, states, received_at=received_at, now=now)
        loaded = rebuild.begin(application)
        if (loaded.position, loaded.rows()) != (position, derived.rows()):
            raise NotVerified(application, position)
        chart_buckets.subtract(old)
        dead_letters.forget(application, until=position)
    return position


def _forget_buckets(application: str, *, before: datetime) -> None:
    """Drop the expired counts of an application without new events."""
    if not any(
        model._default_manager.filter(application=application, hour__lt=before).exists()
        for model in (models.HourTotal, models.HeldChange)
    ):
        return
    old = rebuild.begin(application).buckets.split_before(before)
    with transaction.atomic(durable=True):
        store.lock(application)
        store.delete_base_buckets(application, before=before)
        chart_buckets.subtract(old)


def _packed(state: StreamState) -> set[store.StoredState]:
    return {state_at_position.packed(each) for each in state.states()}

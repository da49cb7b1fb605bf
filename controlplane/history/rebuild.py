"""Derive the views again from the log, to verify or to correct them.

It folds the same events with the same code as `projections`, so the rows are equal byte for byte.
If the log begins at a base, so does the fold.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter

from django.db import models as fields
from django.db import transaction

from arrester.controlplane import store
from arrester.controlplane.history import dead_letter_index, rebuild_swap, state_at_position
from arrester.controlplane.history.dead_letter_index import DerivedIndex
from arrester.controlplane.history.snapshots import Snapshots
from arrester.controlplane.views import chart_buckets, row_mapping
from arrester.controlplane.views.bulk_upsert import Row, Value, key_columns
from arrester.controlplane.views.chart_buckets import Buckets
from arrester.domain.state.stream_state import StreamState, empty
from arrester.domain.wire.failure_columns import Stored, last

log = logging.getLogger(__name__)
#: A lock that is held for longer is reported.
LOCK_SECONDS = 1.0
PROGRESS_EVERY = 50_000
#: Events per chunk, whose sums become states at once.
EVENTS_PER_CHUNK = 30_000
#: This few events are left for the time under the stream's lock.
NEAR = 2_000
Progress = Callable[[int], None]
Derived = dict[type[fields.Model], list[Row]]
#: The values of a key, or its only one.
Key = tuple[Value, ...] | Value
VIEWS: list[type[fields.Model]] = [
    *(view.model for view in row_mapping.STATES),
    *chart_buckets.VIEWS,
]


def silent(_count: int) -> None:
    """Report no progress."""


@dataclass(slots=True)
class Derivation:
    """The states derived from the log of an application up to a position."""

    state: StreamState
    buckets: Buckets
    position: int
    #: The derived index of dead letters; None: it is not derived.
    dead_letters: DerivedIndex | None = None

    def fold(self, events: Iterable[Stored], *, progress: Progress = silent) -> None:
        """Fold the events that follow."""
        before = self.position
        for some in _chunks(events):
            self.state.fold(some)
            self.buckets.count(some)
            self.buckets.add_held_changes(self.state)
            if self.dead_letters is not None:
                self.dead_letters.add(some)
            self.position = last(some[-1])
            if self.position // PROGRESS_EVERY > before // PROGRESS_EVERY:
                progress(self.position)
            before = self.position

    def rows(self, *, after: int = 0) -> Derived:
        """Return the rows of the views that have changed after a position."""
        return {
            model: row_mapping.in_order(model, self.rows_of(model, after=after)) for model in VIEWS
        }

    def rows_of(self, model: type[fields.Model], *, after: int = 0) -> list[Row]:
        """Return the rows of one view that have changed after a position, in any order."""
        if model in chart_buckets.VIEWS:
            return [row for row in self.buckets.rows(model) if _number(row) > after]
        (view,) = (each for each in row_mapping.STATES if each.model is model)
        states = view.states(self.state).values()
        return [view.row(each) for each in states if each.sequence > after]

    def stored_states(self, *, after: int) -> Iterator[store.StoredState]:
        """Return the changes after a position in the form of a base."""
        for each in self.state.states():
            if each.sequence > after:
                yield state_at_position.packed(each)
        yield from self.buckets.stored_states(after=after)


def begin(application: str) -> Derivation:
    """Return the states at the beginning of the log: empty, or the base."""
    base = store.base(application)
    if not base.position:
        return Derivation(empty(application), Buckets(application), 0)
    states = store.base_states(application)
    buckets = Buckets(application)
    buckets.load(states)
    return Derivation(state_at_position.load_states(application, states), buckets, base.position)


def derive(application: str, *, until: int, progress: Progress = silent) -> Derivation:
    """Return the states up to a position, read from the beginning of the log."""
    derivation = begin(application)
    derivation.fold(
        store.read_stored(application, after=derivation.position, until=until), progress=progress
    )
    return derivation


def live_rows(application: str) -> Derived:
    """Return the live rows of the views."""
    return {model: row_mapping.live_rows(model, application) for model in VIEWS}


def rebuild(application: str, *, progress: Progress = silent) -> int:
    """Derive the views again from the log, then replace the live rows that differ.

    Folds continue meanwhile; only the last events are read under the stream's lock. Return the
    position that the views reflect.
    """
    with _alone(application), dead_letter_index.deriving(application) as index:
        derivation, compared_snapshots = begin(application), Snapshots(application)
        derivation.dead_letters = index
        begun, changed = derivation.position, _ChangedRows(application)
        rebuild_swap.clear(application)
        _catch_up(application, derivation, progress=progress, snapshots=compared_snapshots)
        # If the end was near from the start, everything is compared under the stream's lock.
        compared = derivation.position if derivation.position > begun else 0
        if compared:
            changed.put(derivation)
        _report_locked_stream(application)
        with transaction.atomic(durable=True):
            # A snapshot made in parallel would contain rows that are about to be replaced.
            store.wait_for_snapshot_lock(application)
            stream = store.lock(application)
            _fold_until(
                derivation, stream.sequence, progress=progress, snapshots=compared_snapshots
            )
            changed.put(derivation, after=compared)
            if changed.keys:
                rebuild_swap.swap(application, VIEWS)
            index.swap()
            compared_snapshots.swap()
        rebuild_swap.clear(application)
    return stream.sequence


@contextmanager
def _alone(application: str) -> Iterator[None]:
    """Hold the lock of rebuilds, and log that it is waited for."""
    with store.try_maintenance_lock(application) as acquired:
        if acquired:
            yield
            return
    log.warning("%s: another rebuild or housekeeping is running; waiting for its end", application)
    with store.maintenance_lock(application):
        yield


def _report_locked_stream(application: str) -> None:
    """Log that the stream's lock is waited for, if a fold or an action holds it for a second."""
    try:
        with store.waiting_at_most(LOCK_SECONDS), transaction.atomic():
            store.lock(application)
    except store.StreamLocked:
        log.warning("%s: a fold or an action has locked its stream; waiting for it", application)


@dataclass(slots=True)
class _ChangedRows:
    """Rows that differ from the live ones, stored beside those."""

    application: str
    keys: set[tuple[type[fields.Model], Key]] = field(default_factory=set)

    def put(self, derivation: Derivation, *, after: int = 0) -> None:
        """Compare the rows changed after a position, derived and live. Rows that were already
        stored are replaced."""
        wanted, deleted = self._apart(derivation, after)
        rebuild_swap.save(self.application, wanted, deleted=deleted)

    def _apart(self, derivation: Derivation, after: int) -> tuple[Derived, Derived]:
        """Return the rows to write and those to delete."""
        wanted: Derived = {}
        deleted: Derived = {}
        for model in VIEWS:
            derived = _by_key(model, derivation.rows_of(model, after=after))
            others = {}
            for key, row in _keyed(
                model, row_mapping.each_live_row(model, self.application, after=after)
            ):
                if key not in derived:
                    others[key] = row
                elif derived[key] == row and (model, key) not in self.keys:
                    del derived[key]
            if after and others:
                # Rows unchanged by the log since then.
                earlier = _by_key(model, derivation.rows_of(model))
                derived |= {key: earlier[key] for key in others.keys() & earlier.keys()}
            wanted[model] = [*derived.values()]
            deleted[model] = [row for key, row in others.items() if key not in derived]
            self.keys.update((model, key) for key in (*derived, *others))
        return wanted, deleted


def _by_key(model: type[fields.Model], some: Iterable[Row]) -> dict[Key, Row]:
    return dict(_keyed(model, some))


def _keyed(model: type[fields.Model], some: Iterable[Row]) -> Iterator[tuple[Key, Row]]:
    key = itemgetter(*key_columns(model))
    return ((key(row), row) for row in some)


def _fold_until(
    derivation: Derivation,
    until: int,
    *,
    progress: Progress,
    snapshots: Snapshots | None = None,
) -> None:
    """Fold the events up to a position, and compare the snapshots on the way."""
    name = derivation.state.application.name
    while derivation.position < until:
        stop = until if snapshots is None else snapshots.next(after=derivation.position)
        elements = store.read_stored(name, after=derivation.position, until=min(stop, until))
        derivation.fold(elements, progress=progress)
        if snapshots is not None and derivation.position == stop:
            snapshots.compare(derivation.state, stop)


def _catch_up(
    application: str,
    derivation: Derivation,
    *,
    progress: Progress,
    snapshots: Snapshots | None = None,
) -> None:
    """Fold until the end of the log is near."""
    while (end := store.read_stream(application).sequence) - derivation.position > NEAR:
        _fold_until(derivation, end, progress=progress, snapshots=snapshots)


def differences(application: str, *, progress: Progress = silent) -> list[str]:
    """Return how the live rows differ from the log; empty if they are equal.

    Folds continue meanwhile, until the last events.
    """
    with _alone(application), dead_letter_index.deriving(application) as index:
        derivation = begin(application)
        derivation.dead_letters = index
        _catch_up(application, derivation, progress=progress)
        _report_locked_stream(application)
        with transaction.atomic():
            store.lock(application)
            derivation.fold(
                store.read_stored(application, after=derivation.position), progress=progress
            )
            derived, shown = derivation.rows(), live_rows(application)
            dead_letters = [*index.differences()]
    return [
        *(line for model in VIEWS for line in _compare(model, derived[model], shown[model])),
        *dead_letters,
    ]


def _compare(model: type[fields.Model], derived: list[Row], shown: list[Row]) -> Iterator[str]:
    table = model._meta.db_table
    derived_rows = {row_mapping.key_of(model, row): row for row in derived}
    shown_rows = {row_mapping.key_of(model, row): row for row in shown}
    for key in sorted(derived_rows.keys() | shown_rows.keys()):
        if derived_rows.get(key) != shown_rows.get(key):
            yield (
                f"{table} {key}: the log gives {derived_rows.get(key)},"
                f" there is {shown_rows.get(key)}"
            )


def _number(row: Row) -> int:
    sequence = row["sequence"]
    assert isinstance(sequence, int)
    return sequence


def _chunks(elements: Iterable[Stored], size: int = EVENTS_PER_CHUNK) -> Iterator[list[Stored]]:
    some: list[Stored] = []
    for each in elements:
        some.append(each)
        if last(each) - some[0].sequence + 1 >= size:
            yield some
            some = []
    if some:
        yield some

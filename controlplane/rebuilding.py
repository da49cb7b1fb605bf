"""The views derived again from the log: to look whether they are right, or to put them right.

It folds the same events with the same code as `projections`, so it gives the same rows, byte for
byte. Where the log begins at a base, so does the fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from django.db import models as fields
from django.db import transaction

from controlplane import models, past, rows, shadow, store
from controlplane.buckets import Buckets
from controlplane.collecting import not_collecting
from controlplane.domain.failed import Stored, last
from controlplane.domain.stream import StreamState, Subjects, empty
from controlplane.writing import Row

PROGRESS_EVERY = 50_000
#: Sums of so many become states at once.
EVENTS_PER_CHUNK = 20_000
#: So few events are left for the time under the stream's lock.
NEAR = 2_000
Progress = Callable[[int], None]
Derived = dict[type[fields.Model], list[Row]]
VIEWS: list[type[fields.Model]] = [
    models.Application,
    models.Instance,
    models.Thread,
    models.Task,
    models.Command,
    models.ErrorGroup,
    models.MinuteCount,
    models.HourCount,
    models.MinuteTotal,
    models.HourTotal,
    models.HeldChange,
]


def silent(_count: int) -> None:
    """Show no progress."""


@dataclass(slots=True)
class Derivation:
    """What the log of an application gives up to a position."""

    state: StreamState
    buckets: Buckets
    position: int

    def fold(self, events: Iterable[Stored], *, progress: Progress = silent) -> None:
        """Fold the events that follow."""
        before = self.position
        with not_collecting():
            for some in _chunks(events):
                self.state.fold(some)
                self.buckets.count(some)
                self.buckets.take(self.state)
                self.position = last(some[-1])
                if self.position // PROGRESS_EVERY > before // PROGRESS_EVERY:
                    progress(self.position)
                before = self.position

    def rows(self, *, after: int = 0) -> Derived:
        """Return the rows of the views that have changed after a position."""
        state = self.state
        found: Derived = {
            models.Application: [rows.APPLICATIONS.row(state.application)],
            models.Instance: [rows.INSTANCES.row(each) for each in state.instances.values()],
            models.Thread: [rows.THREADS.row(each) for each in state.threads.values()],
            models.Task: [rows.TASKS.row(each) for each in state.tasks.values()],
            models.Command: [rows.COMMANDS.row(each) for each in state.commands.values()],
            models.ErrorGroup: [rows.GROUPS.row(each) for each in state.groups.values()],
            models.MinuteCount: self.buckets.minute_rows(),
            models.HourCount: self.buckets.hour_rows(),
            models.MinuteTotal: self.buckets.minute_total_rows(),
            models.HourTotal: self.buckets.hour_total_rows(),
            models.HeldChange: self.buckets.held_rows(),
        }
        return {
            model: rows.in_order(model, [row for row in found[model] if _number(row) > after])
            for model in VIEWS
        }

    def kept(self, *, after: int) -> Iterator[store.Kept]:
        """Return what has changed after a position as a base keeps it."""
        for each in past.everything(self.state):
            if each.sequence > after:
                yield past.packed(each)
        yield from self.buckets.kept(after=after)


def begin(application: str) -> Derivation:
    """Return what is true where the log begins: nothing, or what its base says."""
    base = store.base(application)
    if not base.position:
        return Derivation(empty(application), Buckets(application), 0)
    kept = store.kept_in_base(application)
    buckets = Buckets(application)
    buckets.load(kept)
    return Derivation(past.loaded(application, kept), buckets, base.position)


def derive(application: str, *, until: int, progress: Progress = silent) -> Derivation:
    """Return what the log gives up to a position, read from where it begins."""
    found = begin(application)
    found.fold(store.read_told(application, after=found.position, until=until), progress=progress)
    return found


def live(application: str) -> Derived:
    """Return the rows of the views as they are."""
    return {model: rows.live_rows(model, application) for model in VIEWS}


def rebuild(application: str, *, progress: Progress = silent) -> int:
    """Derive the views again beside the live ones, then put them in their place.

    Folds go on meanwhile; only the last few events are read under the stream's lock. Returns the
    position that the views are true for.
    """
    with store.maintaining(application):
        found = begin(application)
        shadow.clear(application)
        _catch_up(application, found, progress=progress, keep=_beside)
        shadow.save(application, found.rows())
        written = found.position
        with transaction.atomic(durable=True):
            # What is kept beside this would hold rows that are about to be replaced.
            store.no_keeper(application)
            stream = store.lock(application)
            found.fold(store.read_told(application, after=found.position), progress=progress)
            shadow.save(application, found.rows(after=written))
            shadow.swap(application, VIEWS)
            store.swap_snapshots(application)
        shadow.clear(application)
    return stream.sequence


Keep = Callable[[Derivation], None]


def _forget(_found: Derivation) -> None:
    """Keep nothing of the states on the way."""


def _beside(found: Derivation) -> None:
    """Keep what has changed since the last time beside the snapshots that there are."""
    kept = (past.packed(each) for each in past.touched(found.state))
    shadow.save_snapshot(found.state.application.name, found.position, kept)


def _catch_up(
    application: str, found: Derivation, *, progress: Progress, keep: Keep = _forget
) -> None:
    """Fold until the end of the log is near; keep the states on the way, one stretch at a time."""
    while (end := store.look(application).sequence) - found.position > NEAR:
        until = min(end, found.position + past.EVENTS_PER_SNAPSHOT)
        found.fold(
            store.read_told(application, after=found.position, until=until), progress=progress
        )
        keep(found)
        found.state.touched = Subjects()


def differences(application: str, *, progress: Progress = silent) -> list[str]:
    """Return how the live rows differ from what the log gives; empty when they are equal.

    Folds go on meanwhile, until the last few events.
    """
    with store.maintaining(application):
        found = begin(application)
        _catch_up(application, found, progress=progress)
        with transaction.atomic():
            store.lock(application)
            found.fold(store.read_told(application, after=found.position), progress=progress)
            derived, shown = found.rows(), live(application)
    return [line for model in VIEWS for line in _compare(model, derived[model], shown[model])]


def _compare(model: type[fields.Model], derived: list[Row], found: list[Row]) -> Iterator[str]:
    table = model._meta.db_table
    ours = {rows.key_of(model, row): row for row in derived}
    theirs = {rows.key_of(model, row): row for row in found}
    for key in sorted(ours.keys() | theirs.keys()):
        if ours.get(key) != theirs.get(key):
            yield f"{table} {key}: the log gives {ours.get(key)}, there is {theirs.get(key)}"


def _number(row: Row) -> int:
    sequence = row["sequence"]
    assert isinstance(sequence, int)
    return sequence


def _chunks(told: Iterable[Stored], size: int = EVENTS_PER_CHUNK) -> Iterator[list[Stored]]:
    some: list[Stored] = []
    for each in told:
        some.append(each)
        if last(each) - some[0].sequence + 1 >= size:
            yield some
            some = []
    if some:
        yield some

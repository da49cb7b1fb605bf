"""Counts of failed records by time: per minute, pipeline, stage and group; per hour and group;
per minute and per hour in total. And changes of held records, per hour and pipeline. Charts use
these counts, so no page reads events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from django.db import models as fields

from arrester.controlplane import models, store
from arrester.controlplane.domain.state import minute_counts
from arrester.controlplane.domain.state.keyed_states import HeldKey
from arrester.controlplane.domain.state.stream_state import StreamState
from arrester.controlplane.domain.wire.failure_columns import Stored
from arrester.controlplane.store.column_limits import MOST, fit, saturated
from arrester.controlplane.views import row_mapping
from arrester.controlplane.views.bulk_upsert import Row, Upsert, upsert

#: The parts of a bucket's key, and the number of failures with the last position.
Minute = tuple[datetime, str, str, str]
Hour = tuple[datetime, str]
Counted = tuple[int, int]
MINUTES, HOURS, HELD = "minute_count", "hour_count", "held_change"
#: In place of a bucket that a base no longer has.
FORGOTTEN = "null"
_POSITION = {"sequence": "excluded.sequence"}


@dataclass(slots=True)
class Buckets:
    """Counts of events."""

    application: str
    minutes: dict[Minute, Counted] = field(default_factory=dict)
    hours: dict[Hour, Counted] = field(default_factory=dict)
    #: Changes of held records.
    held: dict[HeldKey, Counted] = field(default_factory=dict)

    def count(self, told: Iterable[Stored]) -> None:
        """Count the failed records of events."""
        for minute, counted in minute_counts.failures(told):
            hour = minute.replace(minute=0)
            for (pipeline, stage, mark), (count, sequence) in counted.items():
                key = (minute, pipeline, fit(stage), mark)
                before, last = self.minutes.get(key, (0, 0))
                self.minutes[key] = (before + count, max(last, sequence))
                before, last = self.hours.get((hour, mark), (0, 0))
                self.hours[hour, mark] = (before + count, max(last, sequence))

    def take(self, state: StreamState) -> None:
        """Add the changes of held records of a fold."""
        for key, (change, sequence) in state.held_changes.items():
            self.held[key] = (self.held.get(key, (0, 0))[0] + change, sequence)
        state.held_changes = {}

    def minute_rows(self) -> list[Row]:
        """Return the rows of the view by minute."""
        return [
            {
                "application": self.application,
                "minute": minute,
                "pipeline": pipeline,
                "stage": stage,
                "fingerprint": fingerprint,
                "count": saturated(count),
                "sequence": sequence,
            }
            for (minute, pipeline, stage, fingerprint), (count, sequence) in self.minutes.items()
        ]

    def hour_rows(self) -> list[Row]:
        """Return the rows of the view by hour."""
        return [
            {
                "application": self.application,
                "hour": hour,
                "fingerprint": fingerprint,
                "count": saturated(count),
                "sequence": sequence,
            }
            for (hour, fingerprint), (count, sequence) in self.hours.items()
        ]

    def minute_total_rows(self) -> list[Row]:
        """Return the rows of the view of totals by minute."""
        return self._totals("minute", ((key[0], each) for key, each in self.minutes.items()))

    def hour_total_rows(self) -> list[Row]:
        """Return the rows of the view of totals by hour."""
        return self._totals("hour", ((key[0], each) for key, each in self.hours.items()))

    def _totals(self, unit: str, counted: Iterable[tuple[datetime, Counted]]) -> list[Row]:
        totals: dict[datetime, Counted] = {}
        for moment, (count, sequence) in counted:
            before = totals.get(moment, (0, 0))
            totals[moment] = (before[0] + count, max(before[1], sequence))
        return [
            {
                "application": self.application,
                unit: moment,
                "count": saturated(count),
                "sequence": sequence,
            }
            for moment, (count, sequence) in totals.items()
        ]

    def held_rows(self) -> list[Row]:
        """Return the rows of the view of held records."""
        return [
            {
                "application": self.application,
                "hour": hour,
                "pipeline": pipeline,
                "checkpoint": checkpoint,
                "change": change,
                "sequence": sequence,
            }
            for (hour, pipeline, checkpoint), (change, sequence) in self.held.items()
        ]

    def kept(self, *, after: int) -> Iterator[store.StoredState]:
        """Return the buckets that have changed after a position, in the form of a base."""
        tables: dict[str, Mapping[Any, Counted]] = {
            MINUTES: self.minutes,
            HOURS: self.hours,
            HELD: self.held,
        }
        for kind, found in tables.items():
            for key, counted in found.items():
                if counted[1] > after:
                    yield store.StoredState(kind, _text(key), _text(counted))

    def forgotten(self) -> Iterator[store.StoredState]:
        """Return the form in which a base marks these buckets as deleted."""
        for each in self.kept(after=0):
            yield each._replace(state=FORGOTTEN)

    def load(self, kept: Iterable[store.StoredState]) -> None:
        """Add the buckets of a base; other kinds are skipped."""
        for each in kept:
            if each.state == FORGOTTEN:
                continue
            if each.kind == MINUTES:
                minute = msgspec.json.decode(each.key, type=Minute)
                self.minutes[minute] = msgspec.json.decode(each.state, type=Counted)
            elif each.kind == HOURS:
                hour = msgspec.json.decode(each.key, type=Hour)
                self.hours[hour] = msgspec.json.decode(each.state, type=Counted)
            elif each.kind == HELD:
                key = msgspec.json.decode(each.key, type=HeldKey)
                self.held[key] = msgspec.json.decode(each.state, type=Counted)

    def split(self, moment: datetime) -> Buckets:
        """Remove the buckets that are older than a moment, and return them."""
        old = Buckets(self.application)
        old.minutes = {key: counted for key, counted in self.minutes.items() if key[0] < moment}
        old.hours = {key: counted for key, counted in self.hours.items() if key[0] < moment}
        self.minutes = {key: each for key, each in self.minutes.items() if key not in old.minutes}
        self.hours = {key: each for key, each in self.hours.items() if key not in old.hours}
        old.held = {key: counted for key, counted in self.held.items() if key[0] < moment}
        self.held = {key: each for key, each in self.held.items() if key not in old.held}
        return old


def added(buckets: Buckets) -> list[Upsert]:
    """Return the statements that add counts to the views."""
    found = []
    for model, counted in _tables(buckets):
        table = model._meta.db_table
        total = f"least({table}.count::numeric + excluded.count, {MOST})::bigint"
        found.append(Upsert(model, counted, {"count": total, **_POSITION}))
    change = {"change": "held_change.change + excluded.change", **_POSITION}
    return [*found, Upsert(models.HeldChange, buckets.held_rows(), change)]


def forget(buckets: Buckets) -> None:
    """Subtract counts from the views; later counts stay."""
    less = {"change": "held_change.change - excluded.change"}
    taken = [Upsert(models.HeldChange, buckets.held_rows(), less)]
    for model, counted in _tables(buckets):
        less = {"count": f"{model._meta.db_table}.count - excluded.count"}
        taken.append(Upsert(model, counted, less))
    upsert(taken)
    for model, _ in _tables(buckets):
        row_mapping.delete_empty(model, buckets.application)
    if buckets.held:
        models.HeldChange.objects.filter(
            application=buckets.application,
            change=0,
            hour__lte=max(hour for hour, _, _ in buckets.held),
            sequence__lte=max(sequence for _, sequence in buckets.held.values()),
        ).delete()


def _tables(buckets: Buckets) -> list[tuple[type[fields.Model], list[Row]]]:
    return [
        (models.MinuteCount, buckets.minute_rows()),
        (models.HourCount, buckets.hour_rows()),
        (models.MinuteTotal, buckets.minute_total_rows()),
        (models.HourTotal, buckets.hour_total_rows()),
    ]


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()

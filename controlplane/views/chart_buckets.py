"""Counts of failed records by time: per minute, pipeline, stage and group; per hour and group; per
hour, pipeline and stage; per minute and per hour in total. And changes of held records, per hour
and pipeline; those per minute are in `held_minutes`. Charts use these counts, so no page reads
events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from django.db import models as fields

from arrester.controlplane import models, store
from arrester.controlplane.store.column_values import MAX_BIGINT, fit, saturated
from arrester.controlplane.views import row_mapping
from arrester.controlplane.views.bulk_upsert import Row, Upsert, key_columns, upsert
from arrester.domain.events import FAILED
from arrester.domain.state.keyed_states import HeldKey
from arrester.domain.state.stream_state import StreamState
from arrester.domain.wire.failure_columns import Stored, StoredFailures, moment

#: The parts of a bucket's key, and the number of failures with the log position of the last one.
MinuteKey = tuple[datetime, str, str, str]
HourKey = tuple[datetime, str]
Counted = tuple[int, int]
#: The buckets of a base, by kind, and the types of their keys.
_KEY_TYPES: Mapping[str, Any] = {
    "minute_count": MinuteKey,
    "hour_count": HourKey,
    "held_change": HeldKey,
}
#: In place of a bucket that a base no longer has.
DELETED = "null"
_MICROSECONDS_PER_MINUTE = 60_000_000
_TOTALS: dict[type[fields.Model], str] = {
    models.MinuteCount: "count",
    models.HourCount: "count",
    models.MinuteTotal: "count",
    models.HourTotal: "count",
    models.HourStage: "count",
    models.HeldChange: "change",
}
#: The views of the buckets.
VIEWS = list(_TOTALS)


@dataclass(slots=True)
class Buckets:
    """Counts of events."""

    application: str
    minutes: dict[MinuteKey, Counted] = field(default_factory=dict)
    hours: dict[HourKey, Counted] = field(default_factory=dict)
    #: Changes of held records, by hour.
    held: dict[HeldKey, Counted] = field(default_factory=dict)

    def count(self, elements: Iterable[Stored]) -> None:
        """Count the failed records of events."""
        for (minute, pipeline, stage, fingerprint), added in _failures(elements).items():
            _add(self.minutes, (minute, pipeline, fit(stage), fingerprint), added)
            _add(self.hours, (minute.replace(minute=0), fingerprint), added)

    def add_held_changes(self, state: StreamState) -> None:
        """Take the changes of held records from a fold."""
        for (minute, *pipeline), change in state.held_changes.items():
            _add(self.held, (minute.replace(minute=0), *pipeline), change)
        state.held_changes = {}

    def rows(self, model: type[fields.Model]) -> list[Row]:
        """Return the rows of one of the views."""
        names = [*key_columns(model), _TOTALS[model], "sequence"]
        return [
            dict(zip(names, (self.application, *key, saturated(count), sequence), strict=True))
            for key, (count, sequence) in self._buckets_of(model).items()
        ]

    def _buckets_of(self, model: type[fields.Model]) -> Mapping[Any, Counted]:
        if model is models.MinuteTotal:
            return _totals(self.minutes)
        if model is models.HourTotal:
            return _totals(self.hours)
        if model is models.HourStage:
            return _stages(self.minutes)
        return self._by_kind()[model._meta.db_table]

    def _by_kind(self) -> dict[str, dict[Any, Counted]]:
        return dict(zip(_KEY_TYPES, (self.minutes, self.hours, self.held), strict=True))

    def stored_states(self, *, after: int) -> Iterator[store.StoredState]:
        """Return the buckets that have changed after a log position, in the form of a base."""
        for kind, buckets in self._by_kind().items():
            for key, counted in buckets.items():
                if counted[1] > after:
                    yield store.StoredState(kind, _json(key), _json(counted))

    def deletions(self) -> Iterator[store.StoredState]:
        """Return the form in which a base marks these buckets as deleted."""
        for each in self.stored_states(after=0):
            yield each._replace(state=DELETED)

    def load(self, states: Iterable[store.StoredState]) -> None:
        """Add the buckets of a base; other kinds are skipped."""
        by_kind = self._by_kind()
        for each in states:
            if each.kind in by_kind and each.state != DELETED:
                key = msgspec.json.decode(each.key, type=_KEY_TYPES[each.kind])
                by_kind[each.kind][key] = msgspec.json.decode(each.state, type=Counted)

    def split_before(self, time: datetime) -> Buckets:
        """Remove the buckets that are older than a time, and return them."""
        old = Buckets(self.application)
        for kind, buckets in self._by_kind().items():
            for key in [key for key in buckets if key[0] < time]:
                old._by_kind()[kind][key] = buckets.pop(key)
        return old


def _add(buckets: dict[Any, Counted], key: object, added: Counted) -> None:
    count, sequence = buckets.get(key, (0, 0))
    buckets[key] = (count + added[0], max(sequence, added[1]))


def _totals(buckets: Mapping[Any, Counted]) -> dict[tuple[datetime], Counted]:
    totals: dict[tuple[datetime], Counted] = {}
    for key, counted in buckets.items():
        _add(totals, key[:1], counted)
    return totals


def _stages(minutes: Mapping[MinuteKey, Counted]) -> dict[tuple[datetime, str, str], Counted]:
    """Return the counts per hour, pipeline and stage."""
    stages: dict[tuple[datetime, str, str], Counted] = {}
    for (minute, pipeline, stage, _), counted in minutes.items():
        _add(stages, (minute.replace(minute=0), pipeline, stage), counted)
    return stages


def _failures(elements: Iterable[Stored]) -> dict[MinuteKey, Counted]:
    """Return the failed records by the minute of their failure."""
    counts: dict[MinuteKey, Counted] = {}
    #: The number of a minute since 1970, and the cause, of columns.
    of_columns: dict[tuple[int, tuple[str, str, str]], list[int]] = {}
    for each in elements:
        if isinstance(each, StoredFailures):
            _count_columns(each, of_columns)
            continue
        event = each.event
        data, run = event.data, event.run
        if isinstance(data, FAILED) and run is not None and data.count:
            minute = event.occurred_at.replace(second=0, microsecond=0)
            cause = (run.pipeline, data.failure.stage, data.failure.fingerprint)
            _add(counts, (minute, *cause), (data.count, each.sequence))
    for (number, cause), (count, sequence) in of_columns.items():
        _add(counts, (moment(number * _MICROSECONDS_PER_MINUTE), *cause), (count, sequence))
    return counts


def _count_columns(
    stored: StoredFailures, counts: dict[tuple[int, tuple[str, str, str]], list[int]]
) -> None:
    failed = stored.failed
    if failed.recurrence:
        return
    causes = [
        (failed.run.pipeline, failed.kinds[kind].stage, fingerprint)
        for kind, fingerprint in zip(failed.kind, failed.fingerprints, strict=True)
    ]
    each = zip(failed.moments, failed.cause, strict=True)
    for sequence, (microseconds, cause) in enumerate(each, stored.sequence):
        key = (microseconds // _MICROSECONDS_PER_MINUTE, causes[cause])
        count_and_last = counts.get(key)
        if count_and_last is None:
            counts[key] = [1, sequence]
        else:
            count_and_last[0] += 1
            count_and_last[1] = sequence


def additions(buckets: Buckets) -> list[Upsert]:
    """Return the statements that add counts to the views."""
    upserts = []
    for model, column in _TOTALS.items():
        sum_ = f"{model._meta.db_table}.{column}::numeric + excluded.{column}"
        changes = {column: f"least({sum_}, {MAX_BIGINT})::bigint", "sequence": "excluded.sequence"}
        upserts.append(Upsert(model, buckets.rows(model), changes))
    return upserts


def subtract(buckets: Buckets) -> None:
    """Subtract counts from the views; later counts stay."""
    upsert(
        Upsert(
            model,
            buckets.rows(model),
            {column: f"{model._meta.db_table}.{column} - excluded.{column}"},
        )
        for model, column in _TOTALS.items()
    )
    for model, column in _TOTALS.items():
        if column == "count":
            row_mapping.delete_empty(model, buckets.application)
    if buckets.held:
        models.HeldChange.objects.filter(
            application=buckets.application,
            change=0,
            hour__lte=max(hour for hour, _, _ in buckets.held),
            sequence__lte=max(sequence for _, sequence in buckets.held.values()),
        ).delete()


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()

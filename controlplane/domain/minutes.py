"""Failed records counted by the minute that they failed in."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from controlplane.domain.events import FAILED, StoredEvent
from controlplane.domain.failed import Stored, StoredFailures, each_stored, moment

#: Pipeline, stage and fingerprint.
Cause = tuple[str, str, str]
#: How many failed of each cause, and the last position that says so.
Counts = Mapping[Cause, Sequence[int]]
#: Before all events.
_NEVER = datetime.min.replace(tzinfo=UTC)
_NOTHING, _MINUTE = timedelta(0), timedelta(minutes=1)
_MICROSECONDS = 60_000_000


def failures(told: Iterable[Stored]) -> Iterator[tuple[datetime, Counts]]:
    """Yield the minutes in which records failed, with how many; a minute may come again."""
    causes: dict[int, list[Cause]] = defaultdict(list)
    sequences: dict[int, list[int]] = defaultdict(list)
    rest: list[Stored] = []
    for each in told:
        found = _one_minute(each) if isinstance(each, StoredFailures) else None
        if found is None or not isinstance(each, StoredFailures):
            rest.append(each)
        elif each.failed.adds:
            causes[found] += _causes(each)
            sequences[found] += range(each.sequence, each.sequence + each.failed.size)
    for minute, some in causes.items():
        # Of what is there twice, a dictionary keeps what came last.
        lasts = dict(zip(some, sequences[minute], strict=True))
        counts = {cause: (count, lasts[cause]) for cause, count in Counter(some).items()}
        yield moment(minute * _MICROSECONDS), counts
    yield from _each(each_stored(rest))


def _one_minute(stored: StoredFailures) -> int | None:
    """Return the minute that all of these failed in, counted from 1970; None: it is not one."""
    moments = stored.failed.moments
    first = min(moments) // _MICROSECONDS
    return first if first == max(moments) // _MICROSECONDS else None


def _causes(stored: StoredFailures) -> Iterator[Cause]:
    failed = stored.failed
    pipeline, kinds = failed.run.pipeline, failed.kinds
    causes = [
        (pipeline, kinds[kind].stage, mark)
        for kind, mark in zip(failed.kind, failed.fingerprints, strict=True)
    ]
    return map(causes.__getitem__, failed.cause)


def _each(events: Iterable[StoredEvent]) -> Iterator[tuple[datetime, Counts]]:
    minute = _NEVER
    counts: dict[Cause, list[int]] = {}
    for each in events:
        event = each.event
        data, run = event.data, event.run
        if not isinstance(data, FAILED) or run is None or not (count := data.count):
            continue
        # Most events are of the minute of the one before.
        if not _NOTHING <= event.occurred_at - minute < _MINUTE:
            yield minute, counts
            counts = {}
            minute = event.occurred_at.replace(second=0, microsecond=0)
        failure = data.failure
        counted = counts.setdefault((run.pipeline, failure.stage, failure.fingerprint), [0, 0])
        counted[0] += count
        counted[1] = each.sequence
    yield minute, counts

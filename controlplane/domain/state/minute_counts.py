"""Count failed records by the minute of their failure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from arrester.controlplane.domain.events import FAILED, StoredEvent
from arrester.controlplane.domain.wire.failure_columns import Stored, StoredFailures, moment
from arrester.controlplane.domain.wire.joined_columns import Joined, joined, lasts

#: Pipeline, stage and fingerprint.
Cause = tuple[str, str, str]
#: The number of failures of each cause, and the last position that adds to it.
Counts = Mapping[Cause, Sequence[int]]
#: Before all events.
_NEVER = datetime.min.replace(tzinfo=UTC)
_NOTHING, _MINUTE = timedelta(0), timedelta(minutes=1)
_MICROSECONDS = 60_000_000


def failures(told: Iterable[Stored]) -> Iterator[tuple[datetime, Counts]]:
    """Yield minutes with the number of failed records; a minute may occur again."""
    alike: dict[tuple[int, str, str], list[StoredFailures]] = defaultdict(list)
    rest: list[StoredEvent] = []
    for each in told:
        if not isinstance(each, StoredFailures):
            rest.append(each)
        elif not each.failed.adds:
            continue
        elif (place := _place(each)) is None:
            yield from _mixed(each)
        else:
            alike[place].append(each)
    for (minute, pipeline, stage), some in alike.items():
        marks, whole = joined(each.failed.marks() for each in some), Joined(some)
        counts = Counter(marks)
        last = lasts(marks, different=len(counts))
        yield (
            moment(minute * _MICROSECONDS),
            {
                (pipeline, stage, mark): (count, whole.sequence(last[mark]))
                for mark, count in counts.items()
            },
        )
    yield from _each(rest)


def _place(stored: StoredFailures) -> tuple[int, str, str] | None:
    """Return the minute, counted from 1970, the pipeline and the stage shared by all of these
    failures; None if there are several."""
    failed = stored.failed
    # Usually sorted already, which is checked faster than minimum and maximum.
    ordered = sorted(failed.moments)
    minute, stage = ordered[0] // _MICROSECONDS, failed.kinds[0].stage
    if ordered[-1] // _MICROSECONDS != minute:
        return None
    if any(kind.stage != stage for kind in failed.kinds):
        return None
    return minute, failed.run.pipeline, stage


def _mixed(stored: StoredFailures) -> Iterator[tuple[datetime, Counts]]:
    failed, pipeline = stored.failed, stored.failed.run.pipeline
    causes = [
        (pipeline, failed.kinds[kind].stage, mark)
        for kind, mark in zip(failed.kind, failed.fingerprints, strict=True)
    ]
    found: dict[int, dict[Cause, list[int]]] = defaultdict(dict)
    both = zip(failed.moments, failed.cause, strict=True)
    for sequence, (at, cause) in enumerate(both, stored.sequence):
        counted = found[at // _MICROSECONDS].setdefault(causes[cause], [0, 0])
        counted[0] += 1
        counted[1] = sequence
    for minute, counts in found.items():
        yield moment(minute * _MICROSECONDS), counts


def _each(events: Iterable[StoredEvent]) -> Iterator[tuple[datetime, Counts]]:
    minute = _NEVER
    counts: dict[Cause, list[int]] = {}
    for each in events:
        event = each.event
        data, run = event.data, event.run
        if not isinstance(data, FAILED) or run is None or not (count := data.count):
            continue
        # Most events are of the same minute as the previous one.
        if not _NOTHING <= event.occurred_at - minute < _MINUTE:
            yield minute, counts
            counts = {}
            minute = event.occurred_at.replace(second=0, microsecond=0)
        failure = data.failure
        counted = counts.setdefault((run.pipeline, failure.stage, failure.fingerprint), [0, 0])
        counted[0] += count
        counted[1] = each.sequence
    yield minute, counts

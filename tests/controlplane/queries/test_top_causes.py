"""The top causes have most failed records, however they are found."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from msgspec.structs import replace

from arrester.controlplane import models, queries
from arrester.controlplane.queries.failure_history import counts
from arrester.domain.events import Event, FailuresCounted, FinalResponse
from tests import histories
from tests.controlplane import streams

pytestmark = pytest.mark.usefixtures("fresh_database")
HOUR = timedelta(hours=1)
NOW = datetime.now(UTC)
UNTIL = NOW.replace(minute=0, second=0, microsecond=0) + HOUR
SINCE = UNTIL - 24 * HOUR
Key = tuple[str, str]


def counted(fingerprint: str, count: int, *, ago: int) -> Event:
    failure = replace(histories.FAILURE, fingerprint=fingerprint)
    data = FailuresCounted(
        task="JFK",
        failure=failure,
        response=FinalResponse.CONTINUE,
        count=count,
        first_position=0,
        last_position=count,
    )
    return replace(histories.event(data), occurred_at=UNTIL - HOUR * (ago + 0.5))


def some(random: Random, *, skew: float) -> Counter[Key]:
    """Append failures of three applications; return the number of each cause within the day."""
    total: Counter[Key] = Counter()
    for application in ("a", "b", "c"):
        events = []
        for number in range(25):
            for ago in random.sample(range(30), 9):
                count = 1 + int(random.randrange(100) / (number + 1) ** skew)
                events.append(counted(f"1-{number}", count, ago=ago))
                if ago < 24:
                    total[application, f"1-{number}"] += count
        streams.append(events, received_at=NOW, application=application)
    return total


@pytest.mark.parametrize("few", [0, 10, 1000])
@pytest.mark.parametrize("skew", [0.0, 1.5])
def test_the_top_causes_have_most_failed_records(
    few: int, skew: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "FEW", few)
    total = some(Random(f"{few} {skew}"), skew=skew)
    loudest = max(total, key=lambda key: total[key])
    models.ErrorGroup.objects.filter(application=loudest[0], fingerprint=loudest[1]).update(
        status="MUTED"
    )
    del total[loudest]

    for application in (None, "b"):
        best = sorted(
            (-count, *key) for key, count in total.items() if application in (None, key[0])
        )
        for limit in (1, 6):
            found = queries.top_causes(
                since=SINCE, until=UNTIL, application=application, limit=limit
            )
            shown = [(-c.count, c.group.application, c.group.fingerprint) for c in found]
            assert shown == best[:limit]


def test_without_failed_records_there_is_no_cause() -> None:
    assert queries.top_causes(since=SINCE, until=UNTIL) == ()
    streams.append([counted("1-only", 3, ago=20)], received_at=NOW, application="a")
    (only,) = queries.top_causes(since=SINCE, until=UNTIL)
    assert only.count == 3

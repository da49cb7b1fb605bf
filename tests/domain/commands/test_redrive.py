"""The steps of a redrive follow from its progress."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arrester.domain.commands.redrive import (
    MAX_REDRIVEN,
    RedriveProgress,
    WaitingRecords,
    check_redrive,
    next_redrive_step,
)
from arrester.domain.commands.rollout import Finish, Issue, Stop, Wait
from arrester.domain.errors import InvalidValue
from arrester.domain.events import Redrive
from arrester.domain.wire.dead_letter_columns import MAX_RECORDS

REDRIVE = Redrive(records=100)
NOW = datetime(2026, 11, 20, tzinfo=UTC)


def waiting(records: int) -> WaitingRecords:
    return WaitingRecords(records=records, tasks=5, names=("delays_a", "delays_b"))


AGAIN = WaitingRecords(records=1, tasks=1, names=("delays_a",), stopped_again=1)


@pytest.mark.parametrize(
    ("progress", "step"),
    [
        (RedriveProgress(), Issue(1)),
        (RedriveProgress(issued=1, open=1), Wait()),
        (RedriveProgress(issued=1, redriven=1), Wait()),
        (RedriveProgress(issued=1, processed=1), Issue(10)),
        (RedriveProgress(issued=1), Issue(10)),
        (RedriveProgress(issued=11, processed=6, failed_again=5), Issue(89)),
        # Before all are processed, the first failures do not count.
        (RedriveProgress(issued=11, redriven=9, failed_again=2), Wait()),
        (
            RedriveProgress(issued=1, failed_again=1),
            Stop("0 processed, 1 failed again; 99 more were not redriven"),
        ),
        (
            RedriveProgress(issued=100, processed=10, failed_again=80, discarded=2),
            Finish("10 processed, 80 failed again, 2 discarded, 8 not redriven"),
        ),
        (RedriveProgress(issued=11, processed=1, not_applied="no thread"), Stop("no thread")),
        # What waits for a stopped task counts neither for nor against the next wave.
        (RedriveProgress(issued=1, redriven=1, waiting=waiting(1)), Issue(10)),
        (RedriveProgress(issued=11, redriven=5, processed=6, waiting=waiting(4)), Wait()),
        (
            RedriveProgress(issued=11, redriven=4, processed=3, failed_again=4, waiting=waiting(4)),
            Stop(
                "3 processed, 4 failed again, 4 wait for 5 stopped tasks: delays_a, delays_b and 3"
                " more; 89 more were not redriven"
            ),
        ),
        # But one at which its task stopped again has failed.
        (
            RedriveProgress(issued=1, redriven=1, waiting=AGAIN),
            Stop(
                "0 processed, 0 failed again, 1 waits for 1 stopped task: delays_a (1 task stopped"
                " again); 99 more were not redriven"
            ),
        ),
        (
            RedriveProgress(issued=100, redriven=19, processed=81, waiting=waiting(19)),
            Finish(
                "81 processed, 0 failed again, 19 wait for 5 stopped tasks: delays_a, delays_b and"
                " 3 more"
            ),
        ),
    ],
)
def test_the_next_step(progress: RedriveProgress, step: object) -> None:
    assert next_redrive_step(REDRIVE, progress, NOW) == step


@pytest.mark.parametrize(
    ("waited", "step"),
    [(0, Wait()), (9, Wait()), (10, Issue(30)), (3_600, Issue(30))],
)
def test_a_rate_delays_and_limits_each_command(waited: int, step: object) -> None:
    """Of 30 records a minute, 5 take ten seconds; time in which none was issued is lost."""
    slow = replace(REDRIVE, records_per_minute=30)
    issued = RedriveProgress(
        issued=11, processed=11, last_issued=5, issued_at=NOW - timedelta(seconds=waited)
    )
    assert next_redrive_step(slow, issued, NOW) == step
    assert next_redrive_step(slow, RedriveProgress(), NOW) == Issue(1)


def test_a_rate_has_limits() -> None:
    for rate in (0, MAX_REDRIVEN + 1):
        with pytest.raises(InvalidValue, match=f"records_per_minute.*{rate}.*from 1 to 100,000"):
            check_redrive(replace(REDRIVE, records_per_minute=rate))
    # 1,440 minutes a day.
    check_redrive(Redrive(records=14_400, records_per_minute=10))
    with pytest.raises(InvalidValue, match="from 11 to 100,000: a redrive ends within 24 hours"):
        check_redrive(Redrive(records=14_401, records_per_minute=10))


@given(
    st.integers(1, MAX_REDRIVEN),
    st.booleans(),
    st.none() | st.integers(MAX_REDRIVEN // 50, MAX_REDRIVEN),
)
def test_each_record_is_issued_once(records: int, waves: bool, rate: int | None) -> None:
    redrive = Redrive(records=records, waves=waves, records_per_minute=rate)
    progress, issued, now = RedriveProgress(), 0, NOW
    for _ in range(200):
        step = next_redrive_step(redrive, progress, now)
        if isinstance(step, Finish):
            break
        if isinstance(step, Wait):
            assert rate is not None
            now += timedelta(seconds=30)
            continue
        assert isinstance(step, Issue)
        assert 1 <= step.number <= min(MAX_RECORDS, rate or MAX_RECORDS)
        assert not waves or issued or step.number == 1
        issued += step.number
        progress = replace(
            progress, issued=issued, processed=issued, last_issued=step.number, issued_at=now
        )
    assert step == Finish(f"{records:,} processed, 0 failed again")
    assert issued == records

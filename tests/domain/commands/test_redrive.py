"""The steps of a redrive follow from its progress."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arrester.controlplane.domain.commands.redrive import (
    MAX_REDRIVEN,
    RedriveProgress,
    next_redrive_step,
)
from arrester.controlplane.domain.commands.rollout import Finish, Issue, Stop, Wait
from arrester.controlplane.domain.events import Redrive
from arrester.controlplane.domain.wire.dead_letter_columns import MAX_RECORDS

REDRIVE = Redrive(records=100)


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
    ],
)
def test_the_next_step(progress: RedriveProgress, step: object) -> None:
    assert next_redrive_step(REDRIVE, progress) == step


@given(st.integers(1, MAX_REDRIVEN), st.booleans())
def test_each_record_is_issued_once(records: int, waves: bool) -> None:
    redrive, progress, issued = Redrive(records=records, waves=waves), RedriveProgress(), 0
    for _ in range(100):
        step = next_redrive_step(redrive, progress)
        if not isinstance(step, Issue):
            break
        assert 1 <= step.number <= MAX_RECORDS
        assert not waves or issued or step.number == 1
        issued += step.number
        progress = replace(progress, issued=issued, processed=issued)
    assert step == Finish(f"{records:,} processed, 0 failed again")
    assert issued == records

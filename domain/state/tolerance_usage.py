"""The tolerance that tasks have used in the current run, according to the log.

The agent's own count decides; this one is for display. It counts the same records: those left out
(CONTINUE), per task, since the run began, or in one window.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from arrester.domain.error_policy.tolerance import Tally, Tolerance, Window, count
from arrester.domain.events import (
    FailuresCounted,
    FinalResponse,
    PipelineDescribed,
    RecordFailed,
)
from arrester.domain.python_versions import UTC
from arrester.domain.state.evolve import At
from arrester.domain.state.states import (
    MostToleranceUsed,
    TaskState,
    ThreadState,
    ToleranceUsed,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def tolerance_of(policy: PipelineDescribed) -> Tolerance:
    """Return the limits that a run has reported."""
    return Tolerance(
        limit=policy.tolerance_limit,
        rate_limit=policy.rate_limit,
        window=Window(policy.rate_duration),
    )


def is_bounded(policy: PipelineDescribed | None) -> bool:
    """Whether there is a limit that can be reached."""
    if policy is None:
        return False
    return any(
        limit is not None and limit >= 0 for limit in (policy.tolerance_limit, policy.rate_limit)
    )


def add_usage(
    task: TaskState, thread: ThreadState, data: RecordFailed | FailuresCounted, at: At
) -> tuple[TaskState, ThreadState]:
    """Return task and thread after records were left out; unchanged if no limit counts them."""
    policy = thread.policy
    left_out = data.response is FinalResponse.CONTINUE and at.epoch == thread.epoch
    if policy is None or not left_out or not is_bounded(policy):
        return task, thread
    before = task.spent
    tally = before.tally if before is not None and before.epoch == at.epoch else Tally()
    now_ms = _ms(at.occurred_at)
    # A record that failed again counts for the agent, too.
    records = data.count if isinstance(data, FailuresCounted) else 1
    # The limits are not applied: what the agent has left out is a fact.
    window = Tolerance(window=tolerance_of(policy).window)
    tally = count(window, tally, now_ms=now_ms, records=records).tally
    largest = _largest_usage(thread.spent, tally, task.id.key)
    task = replace(task, spent=ToleranceUsed(epoch=at.epoch, tally=tally))
    if largest == thread.spent:
        return task, thread
    return task, replace(thread, spent=largest, sequence=at.sequence)


class Used(NamedTuple):
    """The records that a task has left out: in its run, and in the current window."""

    total: int = 0
    in_window: int = 0


def of_task(task: TaskState, thread: ThreadState, *, now: datetime) -> Used:
    """Return the records that a task has left out in the current run of its thread."""
    usage, policy = task.spent, thread.policy
    if usage is None or policy is None or usage.epoch != thread.epoch:
        return Used()
    start = tolerance_of(policy).window.start_ms(_ms(now))
    same = usage.tally.window_start_ms == start
    return Used(usage.tally.total, usage.tally.in_window if same else 0)


def in_window(thread: ThreadState, *, now: datetime) -> int:
    """Return the largest number of records that one task has left out in the current window."""
    if thread.policy is None:
        return 0
    start = tolerance_of(thread.policy).window.start_ms(_ms(now))
    return thread.spent.in_window if thread.spent.window_start_ms == start else 0


def window_end(policy: PipelineDescribed, *, now: datetime) -> datetime:
    """Return the end of the current window."""
    window = tolerance_of(policy).window
    return moment(window.start_ms(_ms(now)) + window.milliseconds)


def moment(milliseconds: int) -> datetime:
    """Return milliseconds since the epoch as a time."""
    return EPOCH + timedelta(milliseconds=milliseconds)


def _ms(at: datetime) -> int:
    return (at - EPOCH) // timedelta(milliseconds=1)


def _largest_usage(largest: MostToleranceUsed, tally: Tally, task: str | None) -> MostToleranceUsed:
    if tally.total > largest.total:
        largest = replace(largest, total=tally.total, task=task)
    newer = tally.window_start_ms > largest.window_start_ms
    same = tally.window_start_ms == largest.window_start_ms
    if newer or (same and tally.in_window > largest.in_window):
        largest = replace(
            largest,
            window_start_ms=tally.window_start_ms,
            in_window=tally.in_window,
            window_task=task,
        )
    return largest

"""Rollouts: one command for all tasks that a cause has stopped, issued task by task in waves."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import Meta

from arrester.domain.errors import InvalidValue
from arrester.domain.events import Rollout
from arrester.domain.plural import plural

#: One that has not ended by then expires.
ROLLOUT_EXPIRY = timedelta(hours=24)
#: The part of the tasks in the second wave; the first has one task.
SECOND_WAVE = 0.1
#: The limits of one step, and how often steps are made.
MAX_PER_STEP = 500
STEP_SECONDS = 5
MAX_OBSERVE_SECONDS = 3_600
MAX_TASKS_PER_MINUTE = MAX_PER_STEP * 60 // STEP_SECONDS


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What a rollout has achieved so far."""

    issued: Annotated[int, Meta(description="Commands for tasks.")] = 0
    open: Annotated[int, Meta(description="Of these, those without an answer.")] = 0
    applied: int = 0
    stopped_again: Annotated[
        int, Meta(description="Tasks that applied it, and are stopped again for the same cause.")
    ] = 0
    waiting: Annotated[
        int, Meta(description="Tasks that are stopped now, without a command of it.")
    ] = 0
    #: When the newest command was issued, and when the server received the last answer.
    issued_at: datetime | None = None
    answered_at: datetime | None = None

    @property
    def not_applied(self) -> int:
        """Refused, expired or cancelled."""
        return self.issued - self.open - self.applied


class Issue(msgspec.Struct, frozen=True):
    """Issue the commands for the next tasks or dead letters, at most `number`."""

    number: int


class Wait(msgspec.Struct, frozen=True):
    """Do nothing now."""


class Finish(msgspec.Struct, frozen=True):
    """The rollout or redrive is APPLIED."""

    detail: str


class Stop(msgspec.Struct, frozen=True):
    """The rollout or redrive is CANCELLED: no further command is issued."""

    reason: str


def check_rollout(rollout: Rollout) -> None:
    """Raise InvalidValue for values outside their limits."""
    limits = (
        ("observe_seconds", rollout.observe_seconds, 0, MAX_OBSERVE_SECONDS),
        ("tasks_per_minute", rollout.tasks_per_minute, 1, MAX_TASKS_PER_MINUTE),
    )
    for name, value, least, most in limits:
        if not least <= value <= most:
            raise InvalidValue(name, value, f"a whole number from {least:,} to {most:,}")


def wave_ends(total: int, *, waves: bool) -> list[int]:
    """Return how many of all are in progress or done at the end of each wave."""
    if not waves:
        return [total]
    second = 1 + math.ceil(SECOND_WAVE * total)
    return sorted({min(end, total) for end in (1, second, total)})


def next_step(rollout: Rollout, progress: Progress, now: datetime) -> Issue | Wait | Finish | Stop:
    """Return what a rollout does next. It depends on stored states alone, so it may be repeated."""
    if progress.stopped_again:
        return Stop(_recurrence(progress))
    if progress.not_applied > progress.applied:
        missing = f"{progress.not_applied:,} of {plural(progress.issued, 'task')}"
        return Stop(f"{missing} did not apply the command")
    ends = wave_ends(rollout.tasks, waves=rollout.waves)
    between_waves = progress.issued in ends or not progress.waiting
    if progress.issued and between_waves and not _is_observed(rollout, progress, now):
        return Wait()
    end = next((end for end in ends if end > progress.issued), 0)
    if end and progress.waiting:
        number = min(end - progress.issued, progress.waiting, _allowed(rollout, progress, now))
        return Issue(number) if number else Wait()
    return Finish(_result(rollout, progress))


def _is_observed(rollout: Rollout, progress: Progress, now: datetime) -> bool:
    """Whether all commands are answered, and the time after the last answer is over."""
    if progress.open or progress.answered_at is None:
        return False
    return now - progress.answered_at >= timedelta(seconds=rollout.observe_seconds)


def _allowed(rollout: Rollout, progress: Progress, now: datetime) -> int:
    """Return how many commands the rate allows now."""
    if not rollout.waves or progress.issued_at is None:
        return MAX_PER_STEP - min(progress.open, MAX_PER_STEP)
    per_second = rollout.tasks_per_minute / 60
    elapsed = (now - progress.issued_at).total_seconds()
    # The time of the observation is not caught up.
    elapsed = min(elapsed, max(STEP_SECONDS, 1 / per_second))
    return min(int(elapsed * per_second), MAX_PER_STEP)


def _recurrence(progress: Progress) -> str:
    again = f"{progress.stopped_again:,} of {plural(progress.applied, 'task')} stopped again"
    if not progress.waiting:
        return again
    return f"{again}; {plural(progress.waiting, 'task')} got no command"


def _result(rollout: Rollout, progress: Progress) -> str:
    applied = f"{progress.applied:,} of {plural(progress.issued, 'task')} applied the command"
    if not rollout.observe_seconds:
        return f"{applied}; whether they stopped again was not observed"
    return f"{applied}; none stopped again within {rollout.observe_seconds} s"

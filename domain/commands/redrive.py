"""Redrives: one command for many dead letters, issued slice by slice in waves."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from arrester.domain.commands.rollout import (
    ROLLOUT_EXPIRY,
    Finish,
    Issue,
    Stop,
    Wait,
    wave_ends,
)
from arrester.domain.errors import InvalidValue
from arrester.domain.events import Redrive
from arrester.domain.plural import plural
from arrester.domain.wire.dead_letter_columns import MAX_RECORDS

#: The most dead letters of one redrive.
MAX_REDRIVEN: Final = 100_000
#: Formats of files whose dead letters Spark reads back exactly. In csv and xml, line breaks and
#: white space of a row may change.
READABLE_FILES: Final = ("avro", "json", "orc", "parquet")
#: The formats of dead letters that agents read back.
READ_BACK: Final = tuple(sorted((*READABLE_FILES, "delta", "kafka")))


class WaitingRecords(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters of a redrive that wait for stopped tasks, each behind what its task holds.

    They run when a person or a new run lets their task continue.
    """

    records: int = 0
    tasks: Annotated[int, Meta(description="The number of these tasks.")] = 0
    #: The printed names of the first of them: those with the most records.
    names: tuple[str, ...] = ()
    stopped_again: Annotated[
        int, Meta(description="Of the records, those at which their task stopped again.")
    ] = 0

    @property
    def text(self) -> Annotated[str, Meta(description="In words; empty: none waits.")]:
        """How many wait for which tasks, in words; empty: none does."""
        if not self.records:
            return ""
        tasks, more = plural(self.tasks, "stopped task"), self.tasks - len(self.names)
        verb, names = "waits" if self.records == 1 else "wait", ", ".join(self.names)
        text = f"{self.records:,} {verb} for {tasks}: {names}{f' and {more:,} more' * (more > 0)}"
        again = plural(self.stopped_again, "task")
        return f"{text} ({again} stopped again)" if self.stopped_again else text


class RedriveProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What a redrive has achieved so far. It counts dead letters."""

    #: The number of commands.
    commands: int = 0
    #: An expired command does not count: it is repeated.
    issued: Annotated[int, Meta(description="Those that commands were issued for.")] = 0
    #: The number of the last command, and when it was issued first; None: none was.
    last_issued: int = 0
    issued_at: datetime | None = None
    open: Annotated[int, Meta(description="Of these, those of the command without an answer.")] = 0
    #: Why a command was refused or cancelled; None: none was.
    not_applied: str | None = None
    redriven: Annotated[int, Meta(description="Those that the pipeline processes or holds.")] = 0
    processed: int = 0
    failed_again: int = 0
    discarded: int = 0
    #: Of `redriven`.
    waiting: WaitingRecords = WaitingRecords()

    @property
    def not_taken(self) -> int:
        """Those that were not found, do not fit the source, or were taken by another redrive."""
        taken = self.redriven + self.processed + self.failed_again + self.discarded
        return max(self.issued - self.open - taken, 0)


def check_redrive(redrive: Redrive) -> None:
    """Raise InvalidValue for a rate outside its limits: the redrive would expire before its end."""
    rate = redrive.records_per_minute
    least = max(1, math.ceil(redrive.records / (ROLLOUT_EXPIRY / timedelta(minutes=1))))
    if rate is not None and not least <= rate <= MAX_REDRIVEN:
        hours = ROLLOUT_EXPIRY // timedelta(hours=1)
        allowed = f"from {least:,} to {MAX_REDRIVEN:,}: a redrive ends within {hours} hours"
        raise InvalidValue("records_per_minute", rate, allowed)


def next_redrive_step(
    redrive: Redrive, progress: RedriveProgress, now: datetime
) -> Issue | Wait | Finish | Stop:
    """Return what a redrive does next. It depends on stored states alone, so it may be repeated.

    A slice begins when all records before it are processed, have failed again, or wait for a
    stopped task. The redrive ends when no other record is left.
    """
    if progress.not_applied is not None:
        return Stop(progress.not_applied)
    if progress.open or progress.redriven > progress.waiting.records:
        return Wait()
    left = redrive.records - progress.issued
    if left and progress.failed_again + progress.waiting.stopped_again > progress.processed:
        return Stop(f"{_result(progress)}; {left:,} more were not redriven")
    if left:
        ends = wave_ends(redrive.records, waves=redrive.waves)
        end = next(end for end in ends if end > progress.issued)
        number = min(end - progress.issued, MAX_RECORDS)
        rate = redrive.records_per_minute
        if rate is None:
            return Issue(number)
        return Issue(min(number, rate)) if _is_due(rate, progress, now) else Wait()
    return Finish(_result(progress))


def _is_due(rate: int, progress: RedriveProgress, now: datetime) -> bool:
    """Whether the rate allows the next command: each has at most the records of a minute."""
    if progress.issued_at is None:
        return True
    return now - progress.issued_at >= timedelta(minutes=progress.last_issued / rate)


def _result(progress: RedriveProgress) -> str:
    parts = [f"{progress.processed:,} processed", f"{progress.failed_again:,} failed again"]
    if progress.waiting.records:
        parts.append(progress.waiting.text)
    if progress.discarded:
        parts.append(f"{progress.discarded:,} discarded")
    if progress.not_taken:
        parts.append(f"{progress.not_taken:,} not redriven")
    return ", ".join(parts)

"""Redrives: one command for many dead letters, issued slice by slice in waves."""

from __future__ import annotations

from typing import Final

import msgspec

from arrester.controlplane.domain.commands.rollout import Finish, Issue, Stop, Wait, wave_ends
from arrester.controlplane.domain.events import Redrive
from arrester.controlplane.domain.wire.dead_letter_columns import MAX_RECORDS

#: The most dead letters of one redrive.
MAX_REDRIVEN: Final = 100_000


class RedriveProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What a redrive has achieved so far. It counts dead letters."""

    #: The number of commands.
    commands: int = 0
    #: Those that commands were issued for. An expired command does not count: it is repeated.
    issued: int = 0
    #: The command that waits for an answer has these.
    open: int = 0
    #: Why a command was refused or cancelled; None: none was.
    not_applied: str | None = None
    #: Those that the pipeline processes or holds.
    redriven: int = 0
    processed: int = 0
    failed_again: int = 0
    discarded: int = 0

    @property
    def not_taken(self) -> int:
        """Those that were not found, do not fit the source, or were taken by another redrive."""
        taken = self.redriven + self.processed + self.failed_again + self.discarded
        return max(self.issued - self.open - taken, 0)


def next_redrive_step(redrive: Redrive, progress: RedriveProgress) -> Issue | Wait | Finish | Stop:
    """Return what a redrive does next. It depends on stored states alone, so it may be repeated.

    A slice begins when all records before it are processed or have failed again.
    """
    if progress.not_applied is not None:
        return Stop(progress.not_applied)
    if progress.open or progress.redriven:
        return Wait()
    left = redrive.records - progress.issued
    if left and progress.failed_again > progress.processed:
        return Stop(f"{_result(progress)}; {left:,} more were not redriven")
    if left:
        ends = wave_ends(redrive.records, waves=redrive.waves)
        end = next(end for end in ends if end > progress.issued)
        return Issue(min(end - progress.issued, MAX_RECORDS))
    return Finish(_result(progress))


def _result(progress: RedriveProgress) -> str:
    parts = [f"{progress.processed:,} processed", f"{progress.failed_again:,} failed again"]
    if progress.discarded:
        parts.append(f"{progress.discarded:,} discarded")
    if progress.not_taken:
        parts.append(f"{progress.not_taken:,} not redriven")
    return ", ".join(parts)

"""The check of a replay: each decision finds the records again that it was made about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import xor

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.failures.record_hash import RecordHash
from arrester.agents.journal.entries import Decided
from arrester.agents.journal.state import SavedRows
from arrester.agents.worker.columns import DECIDED, ORDINAL, OUTCOME
from arrester.controlplane.domain.errors import ArresterError


class PositionsChanged(ArresterError):
    """A repeated micro-batch has other records at its positions. Make task and position repeatable,
    and start at a new checkpoint."""


@dataclass(frozen=True)
class ReplayCheck:
    """Count and checksum of the records of a source that a decision is about."""

    record_hash: RecordHash

    def of(self, frame: DataFrame, which: Column) -> Decided:
        """Return count and checksum of the records `which` of an evaluated frame."""
        sums = (
            frame.where(f"{ORDINAL} = 0")
            .where(which)
            .selectExpr("count(1) AS count", f"bit_xor({self.record_hash.sql}) AS checksum")
            .collect()[0]
        )
        return self._decided(sums["count"], sums["checksum"] or 0)

    def of_hashes(self, hashes: Sequence[int]) -> Decided:
        """Return the same of records whose hashes are known, without a job."""
        return self._decided(len(hashes), reduce(xor, hashes, 0))

    def _decided(self, count: int, checksum: int) -> Decided:
        columns = self.record_hash.columns_digest
        return Decided(count=count, checksum=checksum, columns=columns)

    def check(self, frame: DataFrame, saved: Sequence[SavedRows], batch: int) -> None:
        """Raise PositionsChanged if a replay does not find the records of the decisions in `saved`.

        Decisions of 0.2.0 have no checksum and are not checked. With other columns than before,
        the records are counted only.
        """
        decided = [each.decided for each in saved if each.decided is not None]
        if len(decided) != len(saved):
            return
        now = self.of(frame, F.col(OUTCOME) == DECIDED)
        count = sum(each.count for each in decided)
        reason = None
        if now.count != count:
            reason = (
                f"{count} records were held or skipped in it, and {now.count} are found at their"
            )
        elif all(each.columns == now.columns for each in decided):
            checksum = reduce(xor, (each.checksum for each in decided))
            if now.checksum != checksum:
                reason = "other records than were held or skipped in it are at their"
        if reason is not None:
            raise PositionsChanged(
                f"micro-batch {batch} is repeated, but {reason} tasks and positions: task= or "
                "position= does not give a record the same value again, or the source has changed. "
                "Make them repeatable (how-to 'Positions for files') and start at a new checkpoint"
            )

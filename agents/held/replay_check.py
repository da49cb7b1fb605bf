"""The check of a replay: the records of each decision are again at their tasks and positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import xor

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.failures.record_hash import RecordHash
from arrester.agents.journal.entries import RecordsChecksum
from arrester.agents.journal.ledger import SavedRows
from arrester.agents.worker.columns import DECIDED, ORDINAL, OUTCOME
from arrester.controlplane.domain.errors import ArresterError


class PositionsChanged(ArresterError):
    """A repeated micro-batch has other records at its positions.

    Make task and position repeatable, and start at a new checkpoint.
    """


@dataclass(frozen=True)
class ReplayCheck:
    """Identifies the source records of a decision by their count and checksum."""

    record_hash: RecordHash

    def of(self, frame: DataFrame, is_decided: Column) -> RecordsChecksum:
        """Return count and checksum of the decided records of an evaluated frame."""
        sums = (
            frame.where(f"{ORDINAL} = 0")
            .where(is_decided)
            .selectExpr("count(1) AS count", f"bit_xor({self.record_hash.sql}) AS checksum")
            .collect()[0]
        )
        return self._checksum(sums["count"], sums["checksum"] or 0)

    def of_hashes(self, hashes: Sequence[int]) -> RecordsChecksum:
        """Return count and checksum of records whose hashes are known, without a job."""
        return self._checksum(len(hashes), reduce(xor, hashes, 0))

    def _checksum(self, count: int, combined_hash: int) -> RecordsChecksum:
        columns = self.record_hash.columns_digest
        return RecordsChecksum(count=count, combined_hash=combined_hash, columns=columns)

    def check(self, frame: DataFrame, saved: Sequence[SavedRows], batch: int) -> None:
        """Raise PositionsChanged if a replay does not find the records of the decisions in `saved`.

        Decisions of 0.2.0 have no checksum and are not checked. If the source has other columns
        than before, only the count is checked.
        """
        checksums = [each.checksum for each in saved if each.checksum is not None]
        if len(checksums) != len(saved):
            return
        present = self.of(frame, F.col(OUTCOME) == DECIDED)
        count = sum(each.count for each in checksums)
        reason = None
        if present.count != count:
            reason = (
                f"{count} records were held or skipped in it, and {present.count} are found at "
                "their"
            )
        elif all(each.columns == present.columns for each in checksums):
            combined_hash = reduce(xor, (each.combined_hash for each in checksums))
            if present.combined_hash != combined_hash:
                reason = "other records than were held or skipped in it are at their"
        if reason is not None:
            raise PositionsChanged(
                f"micro-batch {batch} is repeated, but {reason} tasks and positions: task= or "
                "position= does not give a record the same value again, or the source has changed. "
                "Make them repeatable (how-to 'Positions for files') and start at a new checkpoint"
            )

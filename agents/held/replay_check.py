"""The check of a replay: the records of each decision are again at their tasks and positions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import xor
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.failures.record_hash import RecordHash
from arrester.agents.journal.entries import RecordsChecksum
from arrester.agents.journal.ledger import SavedRows
from arrester.agents.worker.columns import DECIDED, ORDINAL, OUTCOME, POSITION, TASK
from arrester.domain.errors import ArresterError
from arrester.domain.plural import plural

_log = logging.getLogger("arrester.thread")
_HASH, _STORED_HASH = "__arrester_hash", "__arrester_stored_hash"
#: Returns the held rows of decisions.
HeldRows = Callable[[Sequence[SavedRows]], DataFrame]


class PositionsChanged(ArresterError):
    """A repeated micro-batch has other records at its positions.

    Make task and position repeatable, and start at a new checkpoint.
    """


@dataclass(frozen=True)
class ReplayCheck:
    """Identifies the source records of a decision by their count and checksum."""

    record_hash: RecordHash
    #: Whether the source goes on without records that its store has deleted.
    may_lose_records: bool = False

    def of(self, frame: DataFrame, is_decided: Column) -> RecordsChecksum:
        """Return count and checksum of the decided records of an evaluated frame."""
        rows = frame.where(f"{ORDINAL} = 0").where(is_decided)
        return self.of_values(rows.select(*self.aggregates).collect()[0].asDict())

    @cached_property
    def aggregates(self) -> tuple[Column, ...]:
        """Count and checksum of decided records, as aggregates over them."""
        checksum = F.expr(f"bit_xor({self.record_hash.sql})")
        return F.count(F.lit(1)).alias("count"), checksum.alias("checksum")

    def of_values(self, values: Mapping[str, Any]) -> RecordsChecksum:
        """Return count and checksum from the values of `aggregates`."""
        return self._checksum(values["count"], values["checksum"] or 0)

    def of_hashes(self, hashes: Sequence[int], *, count: int) -> RecordsChecksum:
        """Return count and checksum of records whose hashes are known, each or combined by XOR."""
        return self._checksum(count, reduce(xor, hashes, 0))

    def _checksum(self, count: int, combined_hash: int) -> RecordsChecksum:
        columns = self.record_hash.columns_digest
        return RecordsChecksum(count=count, combined_hash=combined_hash, columns=columns)

    def check(
        self, frame: DataFrame, saved: Sequence[SavedRows], batch: int, held_rows: HeldRows
    ) -> None:
        """Raise PositionsChanged if a replay does not find the records of the decisions in `saved`.

        Decisions of 0.2.0 have no checksum and are not checked. If the source has other columns
        than before, only the count is checked. Where a source may lose records, those that are left
        must be equal to the held ones.
        """
        checksums = [each.checksum for each in saved if each.checksum is not None]
        if len(checksums) != len(saved):
            return
        present = self.of(frame, F.col(OUTCOME) == DECIDED)
        count = sum(each.count for each in checksums)
        is_same_type = all(each.columns == present.columns for each in checksums)
        reason = None
        if self.may_lose_records and present.count < count:
            if is_same_type and self._differ(frame, held_rows(saved)):
                reason = "other records than were held in it are at their"
            else:
                _log.warning(
                    "micro-batch %s is repeated without %s held or skipped in it: the source no "
                    "longer has them; held ones are kept",
                    *(batch, plural(count - present.count, "record")),
                )
        elif present.count != count:
            reason = (
                f"of {plural(count, 'record')} held or skipped in it, {present.count} are found at "
                "their"
            )
        elif is_same_type:
            combined_hash = reduce(xor, (each.combined_hash for each in checksums))
            if present.combined_hash != combined_hash:
                reason = "other records than were held or skipped in it are at their"
        if reason is not None:
            raise PositionsChanged(
                f"micro-batch {batch} is repeated, but {reason} tasks and positions: task= or "
                "position= does not give a record the same value again, or the source has changed. "
                "Make them repeatable (how-to 'Positions for files') and start at a new checkpoint"
            )

    def _differ(self, frame: DataFrame, held: DataFrame) -> bool:
        """Whether a decided record differs from the held one at its task and position."""
        hashed, at = self.record_hash.sql, (TASK, POSITION)
        present = frame.where(f"{ORDINAL} = 0").where(F.col(OUTCOME) == DECIDED)
        present = present.selectExpr(*at, f"{hashed} AS {_HASH}")
        stored = held.selectExpr(
            *(f"{name} AS {name}_stored" for name in at), f"{hashed} AS {_STORED_HASH}"
        )
        is_same_record = reduce(
            Column.__and__, (F.col(name).eqNullSafe(F.col(f"{name}_stored")) for name in at)
        )
        both = present.join(stored, is_same_record)
        return not both.where(F.col(_HASH) != F.col(_STORED_HASH)).isEmpty()

"""Limits of held rows (held.records.limit, held.bytes.limit): above them the run ends."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyspark.sql import SparkSession

from arrester.agents.error_policy.settings import ErrorSettings
from arrester.agents.held.journal_counts import first_entries
from arrester.agents.journal.entries import HeldCount
from arrester.agents.journal.journal import ROWS_FOLDER
from arrester.agents.journal.ledger import Ledger
from arrester.agents.spark.jvm.stores.hadoop import folder_bytes
from arrester.domain.errors import ArresterError
from arrester.domain.plural import plural

_log = logging.getLogger("arrester.held")

#: From this number on a warning is logged: an operator may have forgotten these records.
WARN_RECORDS = 1_000_000


class HeldLimitExceeded(ArresterError):
    """A micro-batch would hold more than the limit. It is not committed, and the run ends.

    Resume or skip the held records, or raise the limit. Then start the pipeline again.
    """

    def __init__(self, held: int, name: str, limit: int, *, stops: bool) -> None:
        super().__init__(f"{held:,} held would be more than {name} allows, which is {limit:,}")
        #: held.limit.response=stop: the uncaught-exception handler is not called.
        self.stops = stops


class HeldLimits:
    """Checks the limits for each micro-batch that adds held rows."""

    def __init__(self, spark: SparkSession, root: str, settings: ErrorSettings) -> None:
        self._spark = spark
        self._root = root
        self._settings = settings
        #: The size of each folder in bytes. Folders never change.
        self._sizes: dict[str, int] = {}
        self._warned = False

    def check(self, ledger: Ledger, folder: str | None, held: Sequence[HeldCount]) -> None:
        """Raise HeldLimitExceeded if these rows, in this new folder, exceed a limit."""
        if not held or folder is None:
            return
        records = sum(task.held for task in ledger.tasks.values())
        records += sum(added.count for added in held)
        self._check("held.records.limit", records, self._settings.held_records_limit)
        bytes_limit = self._settings.held_bytes_limit
        if bytes_limit is not None and bytes_limit >= 0:
            self._check("held.bytes.limit", self._bytes(ledger, folder), bytes_limit)
        if records >= WARN_RECORDS and not self._warned:
            self._warned = True
            _log.warning("%s held in %s", plural(records, "record"), self._root)

    def _check(self, name: str, held: int, limit: int | None) -> None:
        if limit is not None and 0 <= limit < held:
            raise HeldLimitExceeded(held, name, limit, stops=self._settings.held_limit_stops)

    def _bytes(self, ledger: Ledger, folder: str) -> int:
        """Return the size of all folders with held rows, and of the new `folder`, in bytes."""
        by_task = first_entries(ledger)
        held_rows = ledger.held_rows(by_task)
        folders = {
            saved.name
            for key, first in by_task.items()
            for saved, _ in held_rows[key]
            if saved.name is not None and saved.entry >= first
        }
        folders.add(folder)
        self._sizes = {
            name: self._sizes.get(name)
            or folder_bytes(self._spark, f"{self._root}/{ROWS_FOLDER}/{name}")
            for name in folders
        }
        return sum(self._sizes.values())

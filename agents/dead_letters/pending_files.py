"""Pending dead letters in the checkpoint folder, one folder per entry, until they are written."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.journal.entries import DeadLetters
from arrester.agents.journal.storage import FileExists, Storage

_log = logging.getLogger("arrester.thread")

#: One folder per journal entry with dead letters that are not yet at their destination.
FOLDER = "arrester/dead-letters"
#: The suffix of a file that marks a folder as written: the folder is being deleted.
_WRITTEN = ".written"
#: 0.2.0 replaced a folder by one with this suffix. If it ended in between, this one is left.
_REPLACEMENT = ".left"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingDeadLetters:
    """Folders of pending dead letters of a checkpoint. The caller holds the pipeline's lock.

    A folder is written once, under a name of its own, and the journal entry that names it makes it
    valid: an object store cannot move folders.
    """

    spark: SparkSession
    #: The checkpoint's folder.
    files: Storage

    def names(self) -> list[str]:
        """Return the names of all files and folders of dead letters."""
        return self.files.names(FOLDER)

    def recovered(self, dead_letters: DeadLetters) -> DeadLetters | None:
        """Return what an earlier run left of some dead letters; None: they were written."""
        folder = _folder(dead_letters)
        if self.files.exists(folder + _WRITTEN):
            return None
        if self.files.exists(folder):
            return dead_letters
        left = replace(dead_letters, folder=_name(dead_letters) + _REPLACEMENT)
        return left if self.files.exists(_folder(left)) else None

    def delete_all_but(self, pending: Collection[DeadLetters], names: Sequence[str]) -> None:
        """Delete those of `names` that are not pending: a run that ended left them."""
        kept = {_name(each) for each in pending}
        try:
            # In the order of names a folder is deleted before the file that marks it as written.
            for name in sorted(set(names) - kept):
                self.files.delete(f"{FOLDER}/{name}")
        except Exception:  # they only take disk space, until the next run
            _log.warning(
                "%s/%s: folders of an earlier run could not be deleted",
                self.files.root,
                FOLDER,
                exc_info=True,
            )

    def path(self, dead_letters: DeadLetters) -> str:
        """Return the full path of the folder."""
        return f"{self.files.root}/{_folder(dead_letters)}"

    def read(self, dead_letters: DeadLetters) -> DataFrame:
        """Return the pending dead letters."""
        return self.spark.read.parquet(self.path(dead_letters))

    def keep_only(self, dead_letters: DeadLetters, ids: Sequence[str]) -> DeadLetters:
        """Store the dead letters with these IDs in a folder of their own; the others were written.

        The journal entry that names the result replaces the earlier folder.
        """
        rows = self.read(dead_letters)
        if rows.count() == len(ids):
            return dead_letters
        kept_ids = self.spark.createDataFrame([(each,) for each in ids], "id string")
        kept = rows.join(F.broadcast(kept_ids), "id", "left_semi").select(*rows.columns)
        part = replace(dead_letters, folder=f"{dead_letters.name}.{uuid.uuid4().hex[:8]}")
        kept.coalesce(1).write.parquet(self.path(part))
        return part

    def delete(self, dead_letters: DeadLetters) -> None:
        """Delete written dead letters. A partly deleted folder never looks pending."""
        folder = _folder(dead_letters)
        with suppress(FileExists):
            self.files.create(folder + _WRITTEN, b"")
        self.files.delete(folder)
        self.files.delete(folder + _WRITTEN)


def _name(dead_letters: DeadLetters) -> str:
    return dead_letters.folder or dead_letters.name


def _folder(dead_letters: DeadLetters) -> str:
    return f"{FOLDER}/{_name(dead_letters)}"

"""Pending dead letters in the checkpoint folder, one folder per entry, until they are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.journal.entries import DeadLetters
from arrester.agents.journal.storage import Storage

#: One folder per journal entry with dead letters that are not yet at their destination.
FOLDER = "arrester/dead-letters"
#: The replacement of an entry's folder, and the replaced folder: the steps between are moves.
_LEFT, _DONE = ".left", ".done"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingDeadLetters:
    """Folders of pending dead letters of a checkpoint. The caller holds the pipeline's lock."""

    spark: SparkSession
    #: The checkpoint's folder.
    files: Storage

    def names(self) -> set[str]:
        """Return the names of all dead letters in the checkpoint folder."""
        found = self.files.names(FOLDER)
        return {name.removesuffix(_LEFT).removesuffix(_DONE) for name in found}

    def is_waiting(self, letters: DeadLetters) -> bool:
        """Whether the dead letters of an entry are still pending."""
        folder = _folder(letters)
        if self.files.exists(folder):
            return True
        # A run ended between the two moves of `keep_only`. Only then does this folder exist alone.
        if self.files.exists(folder + _LEFT):
            self.files.move(folder + _LEFT, folder)
            return True
        return False

    def path(self, letters: DeadLetters) -> str:
        """Return the full path of the folder."""
        return f"{self.files.root}/{_folder(letters)}"

    def read(self, letters: DeadLetters) -> DataFrame:
        """Return the pending dead letters."""
        return self.spark.read.parquet(self.path(letters))

    def keep_only(self, letters: DeadLetters, ids: Sequence[str]) -> None:
        """Keep the dead letters with these IDs only; the others were written."""
        folder, root = _folder(letters), self.files.root
        waiting = self.read(letters)
        left = self.spark.createDataFrame([(each,) for each in ids], "id string")
        kept = waiting.join(F.broadcast(left), "id", "left_semi").select(*waiting.columns)
        kept.coalesce(1).write.mode("overwrite").parquet(f"{root}/{folder}{_LEFT}")
        self.files.delete(folder + _DONE)
        self.files.move(folder, folder + _DONE)
        self.files.move(folder + _LEFT, folder)
        self.files.delete(folder + _DONE)

    def forget(self, letters: DeadLetters) -> None:
        """Delete written dead letters. A partly deleted folder never looks pending."""
        folder = _folder(letters)
        self.files.delete(folder + _LEFT)
        self.files.delete(folder + _DONE)
        if self.files.exists(folder):
            self.files.move(folder, folder + _DONE)
            self.files.delete(folder + _DONE)


def _folder(letters: DeadLetters) -> str:
    return f"{FOLDER}/{letters.name}"

"""Dead letters beside the checkpoint: a folder for each entry, until they are where they belong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.journal.entries import DeadLetters
from arrester.agents.journal.storage import Storage

#: Letters that are not yet where they belong, a folder for each entry of the journal.
FOLDER = "arrester/letters"
#: What is to take the place of an entry's folder, and what had it: the steps between are moves.
_LEFT, _DONE = ".left", ".done"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFiles:
    """The folders of dead letters of one checkpoint. Its caller holds the pipeline's lock."""

    spark: SparkSession
    #: The checkpoint's folder.
    files: Storage

    def names(self) -> set[str]:
        """Return the names of letters of which there is anything beside the checkpoint."""
        found = self.files.names(FOLDER)
        return {name.removesuffix(_LEFT).removesuffix(_DONE) for name in found}

    def is_waiting(self, letters: DeadLetters) -> bool:
        """Whether letters that an entry names are not yet known to be where they belong."""
        folder = _folder(letters)
        if self.files.exists(folder):
            return True
        # A run ended between the two moves of `keep_only`; only then is this one there alone.
        if self.files.exists(folder + _LEFT):
            self.files.move(folder + _LEFT, folder)
            return True
        return False

    def path(self, letters: DeadLetters) -> str:
        """Return the folder's full name."""
        return f"{self.files.root}/{_folder(letters)}"

    def read(self, letters: DeadLetters) -> DataFrame:
        """Return the letters that wait."""
        return self.spark.read.parquet(self.path(letters))

    def keep_only(self, letters: DeadLetters, ids: Sequence[str]) -> None:
        """Drop the letters that were taken: those with these ids still wait."""
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
        """Delete what is where it belongs; half a folder never looks like one that waits."""
        folder = _folder(letters)
        self.files.delete(folder + _LEFT)
        self.files.delete(folder + _DONE)
        if self.files.exists(folder):
            self.files.move(folder, folder + _DONE)
            self.files.delete(folder + _DONE)


def _folder(letters: DeadLetters) -> str:
    return f"{FOLDER}/{letters.name}"

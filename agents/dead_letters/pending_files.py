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
from pyspark.sql import types as T

from arrester.agents.journal.entries import DeadLetters
from arrester.agents.journal.storage import FileExists, Storage
from arrester.agents.spark.frames.local_frame import local_frame
from arrester.agents.spark.jvm.stores.driver_files import rows_on_driver, write_folder
from arrester.agents.spark.session_conf import exact_parquet

_log = logging.getLogger("arrester.thread")

#: One folder per journal entry with dead letters that are not yet at their destination.
FOLDER = "arrester/dead-letters"
#: The suffix of a file that marks a folder as written: the folder is being deleted.
_WRITTEN = ".written"
_IDS = T.StructType([T.StructField("id", T.StringType())])


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingDeadLetters:
    """Folders of pending dead letters of a checkpoint.

    A folder is written once, under a unique name. It is valid from the journal entry on that names
    it: an object store cannot rename a finished folder.
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
        return dead_letters if self.files.exists(folder) else None

    def delete_all_but(self, pending: Collection[DeadLetters], names: Sequence[str]) -> None:
        """Delete those of `names` that are not pending: an earlier run left them."""
        pending_names = {_folder_name(each) for each in pending}
        try:
            # In the order of names a folder is deleted before the file that marks it as written.
            for name in sorted(set(names) - pending_names):
                self.files.delete(f"{FOLDER}/{name}")
        except Exception:  # until the next run they use disk space only
            _log.warning(
                "%s/%s: folders of an earlier run could not be deleted",
                self.files.root,
                FOLDER,
                exc_info=True,
            )

    def path(self, dead_letters: DeadLetters) -> str:
        """Return the full path of the folder."""
        return f"{self.files.root}/{_folder(dead_letters)}"

    def write(self, dead_letters: DeadLetters, rows: DataFrame) -> None:
        """Write pending dead letters to their folder."""
        path = self.path(dead_letters)
        local = rows_on_driver(rows, "parquet")
        with exact_parquet(rows.sparkSession):
            if local is not None:
                write_folder(local, path, format="parquet")
            else:
                rows.write.mode("overwrite").parquet(path)

    def read(self, dead_letters: DeadLetters, schema: T.StructType | None = None) -> DataFrame:
        """Return the pending dead letters. Without a schema, a job reads it from their files."""
        reader = self.spark.read if schema is None else self.spark.read.schema(schema)
        return reader.parquet(self.path(dead_letters))

    def keep_only(self, dead_letters: DeadLetters, ids: Sequence[str]) -> DeadLetters:
        """Store the dead letters with these IDs in a new folder; the others were written.

        The new folder replaces the earlier one when a journal entry names it.
        """
        rows = self.read(dead_letters)
        if rows.count() == len(ids):
            return dead_letters
        pending_ids = local_frame(self.spark, [(id,) for id in ids], _IDS)
        pending = rows.join(F.broadcast(pending_ids), "id", "left_semi").select(*rows.columns)
        remaining = replace(dead_letters, folder=f"{dead_letters.name}.{uuid.uuid4().hex[:8]}")
        with exact_parquet(pending.sparkSession):
            pending.coalesce(1).write.parquet(self.path(remaining))
        return remaining

    def delete(self, dead_letters: DeadLetters) -> None:
        """Delete written dead letters. A partly deleted folder is marked, so it is not pending."""
        folder = _folder(dead_letters)
        with suppress(FileExists):
            self.files.create(folder + _WRITTEN, b"")
        self.files.delete(folder)
        self.files.delete(folder + _WRITTEN)


def _folder_name(dead_letters: DeadLetters) -> str:
    return dead_letters.folder or dead_letters.name


def _folder(dead_letters: DeadLetters) -> str:
    return f"{FOLDER}/{_folder_name(dead_letters)}"

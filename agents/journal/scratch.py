"""Scratch folders in the checkpoint: written only to check whether a write fails.

The driver and the executors can write there, and no reader of the author's table reads there. A
later run deletes the folders that a killed run left.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from arrester.agents.journal.storage import Storage

_log = logging.getLogger("arrester.thread")

FOLDER: Final = "arrester/scratch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """The scratch folders of one run."""

    files: Storage
    #: The run whose folders are deleted while it is active.
    epoch: int

    @contextmanager
    def folder(self) -> Iterator[str]:
        """Give the name of a new folder, and delete it afterwards."""
        name = f"{self._own_folder}/{uuid4().hex}"
        try:
            yield f"{self.files.root}/{name}"
        finally:
            self._delete(name)

    def clear(self) -> None:
        """Delete what Spark tasks may have written after the end of their job."""
        self._delete(self._own_folder)

    def delete_earlier(self) -> None:
        """Delete the folders of earlier runs: they have ended, or are about to notice it."""
        try:
            names = self.files.names(FOLDER)
        except Exception:
            _log.warning("%s/%s could not be read", self.files.root, FOLDER, exc_info=True)
            return
        for name in names:
            if name.isdigit() and int(name) < self.epoch:
                self._delete(f"{FOLDER}/{name}")

    @property
    def _own_folder(self) -> str:
        return f"{FOLDER}/{self.epoch}"

    def _delete(self, name: str) -> None:
        try:
            self.files.delete(name)
        except Exception:  # it only takes disk space, until the next run
            _log.warning("%s/%s could not be deleted", self.files.root, name, exc_info=True)

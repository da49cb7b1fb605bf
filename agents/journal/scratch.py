"""Folders that nobody looks into: what is written there is for its failure only.

They are beside the checkpoint. There both the driver and executors may write, no reader of the
author's table comes, and a later run of the pipeline finds what a killed one has left.
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

FOLDER: Final = "arrester/trials"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """The folders of one run."""

    files: Storage
    #: Of the run: only its own folders are deleted while it is at work.
    epoch: int

    @contextmanager
    def folder(self) -> Iterator[str]:
        """Give the name of a folder that is not there yet; it is gone afterwards."""
        name = f"{self._ours}/{uuid4().hex}"
        try:
            yield f"{self.files.root}/{name}"
        finally:
            self._delete(name)

    def clear(self) -> None:
        """Delete what Spark tasks may have written behind the end of their job."""
        self._delete(self._ours)

    def tidy(self) -> None:
        """Delete what earlier runs have left: they have ended, or will notice that they have."""
        for name in self._epochs():
            if int(name) < self.epoch:
                self._delete(f"{FOLDER}/{name}")

    def _epochs(self) -> list[str]:
        try:
            return [name for name in self.files.names(FOLDER) if name.isdigit()]
        except Exception:
            _log.warning("%s/%s could not be read", self.files.root, FOLDER, exc_info=True)
            return []

    @property
    def _ours(self) -> str:
        return f"{FOLDER}/{self.epoch}"

    def _delete(self, name: str) -> None:
        try:
            self.files.delete(name)
        except Exception:  # it only takes room, until the next run
            _log.warning("%s/%s could not be deleted", self.files.root, name, exc_info=True)

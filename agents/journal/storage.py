"""Atomic files in the checkpoint folder, and the progress in Spark's own files there.

`agents.spark.jvm.hadoop_storage` implements the same protocol for Hadoop file systems.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from arrester.domain.errors import ArresterError


class FileExists(ArresterError):
    """Another run created this file first. Read it."""


class CheckpointUnusable(ArresterError):
    """The checkpoint folder cannot be used as it is; the message names the file and the reason."""


class Storage(Protocol):
    """File operations on paths below one root folder."""

    root: str
    #: What to do if the store lets two writers create one file.
    remedy: str

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""
        ...

    def create(self, path: str, content: bytes) -> None:
        """Create a file completely or not at all; raises FileExists. Creates missing folders."""
        ...

    def draft(self, path: str, content: bytes) -> Callable[[], None]:
        """Do all of a create but its last operation, and return that.

        Until then no reader sees a file at `path`. Of several drafts of one path, one is completed;
        the last operation of the others raises FileExists.
        """
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or folder exists."""
        ...

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder, an empty list if it does not exist."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with its content. A missing one is no error."""
        ...


class LocalStorage:
    """A folder on a mounted disk. Files are synced before they get their final name."""

    remedy = (
        "Mounts of object stores have no hard links; give the checkpoint by the URL of its store, "
        "such as s3a://, abfss:// or gs://."
    )

    def __init__(self, root: str) -> None:
        self.root = str(Path(root).absolute())

    def read(self, path: str) -> bytes | None:
        try:
            return self._at(path).read_bytes()
        except FileNotFoundError:
            return None

    def create(self, path: str, content: bytes) -> None:
        self.draft(path, content)()

    def draft(self, path: str, content: bytes) -> Callable[[], None]:
        target = self._at(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        file = target.with_name(f".{target.name}.{uuid.uuid4()}.tmp")
        try:
            with file.open("xb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        except BaseException:
            file.unlink(missing_ok=True)
            raise
        return partial(_link, file, target)

    def exists(self, path: str) -> bool:
        return self._at(path).exists()

    def names(self, path: str) -> list[str]:
        folder = self._at(path)
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def delete(self, path: str) -> None:
        target = self._at(path)
        if target.is_dir():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)

    def _at(self, path: str) -> Path:
        return Path(self.root) / path


def _link(draft: Path, target: Path) -> None:
    try:
        # A link never replaces an existing file: this is the fence.
        os.link(draft, target)
    except FileExistsError as exc:
        raise FileExists(f"{target} exists") from exc
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(target.parent)


def checkpoint_id(files: Storage) -> str:
    """Return the ID in Spark's `metadata`, created now for a new checkpoint.

    Spark keeps an existing ID, so a run can claim the checkpoint before its query starts.
    """
    content = files.read("metadata")
    if content is None:
        with suppress(FileExists):
            files.create("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
        content = files.read("metadata") or b""
    try:
        return str(uuid.UUID(json.loads(content)["id"]))
    except (ValueError, KeyError, TypeError) as exc:
        raise CheckpointUnusable(f"{files.root}/metadata is not Spark's: {content!r:.100}") from exc


def last_committed(files: Storage) -> int:
    """Return the number of the last micro-batch that Spark committed, -1 for none."""
    return _last_number(files, "commits")


def last_planned(files: Storage) -> int:
    """Return the number of the last micro-batch whose offsets Spark wrote, -1 for none."""
    return _last_number(files, "offsets")


def delete_drafts(files: Storage) -> None:
    """Delete what a killed driver left of the offsets of its first micro-batch.

    Spark 4.3 starts no query on offsets that are of no micro-batch.
    """
    if last_planned(files) < 0:
        for name in files.names("offsets"):
            if name.endswith((".tmp", ".tmp.crc")):
                files.delete(f"offsets/{name}")


def is_committed(files: Storage, batch: int) -> bool:
    """Whether Spark committed the micro-batch. For a purged one, later commits decide."""
    if files.exists(f"commits/{batch}"):
        return True
    return not files.exists(f"offsets/{batch}") and last_committed(files) >= batch


def _last_number(files: Storage, folder: str) -> int:
    numbers = [int(name) for name in files.names(folder) if name.isdigit()]
    return max(numbers, default=-1)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

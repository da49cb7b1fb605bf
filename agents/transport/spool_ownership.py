"""Ownership of spool files: one live instance per file; files of dead instances are taken over."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

from arrester.agents.transport.spool import MEMORY, UNWRITTEN_BYTES, Spool
from arrester.domain.identity.uuids import uuid7

log = logging.getLogger("arrester.spool")

SUFFIX = ".sqlite"
#: SQLite's own companions of a file in WAL mode.
COMPANIONS = ("", "-wal", "-shm")
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class _Claim:
    """A spool file that no other process may use while `descriptor` is open."""

    path: Path
    descriptor: int

    @property
    def id(self) -> UUID:
        return UUID(self.path.stem)

    def remove(self) -> None:
        """Delete the file and its companions, then the lock; a waiting process finds nothing."""
        for companion in COMPANIONS:
            Path(f"{self.path}{companion}").unlink(missing_ok=True)
        _lock_path(self.path).unlink(missing_ok=True)
        os.close(self.descriptor)

    def release(self) -> None:
        os.close(self.descriptor)


@dataclass(frozen=True, slots=True)
class OwnSpool:
    """This instance's spool and its lock."""

    spool: Spool
    claim: _Claim

    def close(self) -> None:
        """Close the file; delete it if it is empty, else leave it to the next instance."""
        self.spool.write()
        empty = self.spool.is_empty()
        self.spool.close()
        if empty:
            self.claim.remove()
        else:
            self.claim.release()


def open_spool(folder: Path, application: str, *, limit_bytes: int, now: datetime) -> OwnSpool:
    """Return a spool of `application` that only this instance uses.

    The oldest file left by a dead instance is continued; the batches of further ones are added to
    it. Batches that were never sent thus go first. Two live instances never share a file: each
    holds a lock on its own, which the kernel releases when the process ends in any way.
    """
    application_folder = folder / application
    application_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    own: OwnSpool | None = None
    for claim in _abandoned_claims(application_folder):
        try:
            if own is None:
                own = OwnSpool(Spool(claim.path, id=claim.id, limit_bytes=limit_bytes), claim)
            else:
                own.spool.adopt(claim.path)
                claim.remove()
        except sqlite3.OperationalError as exc:  # the disk refuses for now
            log.warning("%s is left to a later instance (%s)", claim.path, exc)
            claim.release()
        except (sqlite3.Error, ValueError) as exc:
            log.error(
                "%s cannot be read (%s); it is renamed to %s.broken", claim.path, exc, claim.path
            )
            claim.path.rename(f"{claim.path}.broken")
            claim.remove()
    own = own or _create_spool(application_folder, limit_bytes, now)
    _check_space(own.spool, application_folder, limit_bytes)
    return own


def _check_space(spool: Spool, folder: Path, limit_bytes: int) -> None:
    """Warn if the disk is smaller than the limit of the spool."""
    if str(spool.path) == MEMORY:
        return
    try:
        free = shutil.disk_usage(folder).free
    except OSError:  # not every file system reports it
        return
    if free < limit_bytes - spool.size_bytes:
        log.warning(
            "the disk of spool %s has %s MiB free, less than spool.bytes.limit (%s MiB): if it is "
            "full, events wait in memory (%s MiB) and in the journals; set ARRESTER_SPOOL to "
            "another folder, or lower spool.bytes.limit",
            folder,
            free // _MIB,
            limit_bytes // _MIB,
            UNWRITTEN_BYTES // _MIB,
        )


def _abandoned_claims(folder: Path) -> Iterator[_Claim]:
    """Yield claims on the files of dead instances, oldest first: their names sort by time."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        claim = _claim(path)
        if claim is None:
            continue
        if path.exists():
            yield claim
        else:
            claim.remove()


def _claim(path: Path) -> _Claim | None:
    """Return the claim on `path`, or None while another process has it."""
    lock = _lock_path(path)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The last holder may have deleted the file: a lock on a deleted file protects nothing.
        if os.stat(lock).st_ino == os.fstat(descriptor).st_ino:
            return _Claim(path, descriptor)
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def _lock_path(path: Path) -> Path:
    return path.with_suffix(".lock")


def _create_spool(folder: Path, limit_bytes: int, now: datetime) -> OwnSpool:
    claim = None
    while claim is None:
        claim = _claim(folder / f"{uuid7(now)}{SUFFIX}")
    try:
        return OwnSpool(Spool(claim.path, id=claim.id, limit_bytes=limit_bytes), claim)
    except sqlite3.Error as exc:
        log.warning("%s cannot be created (%s); events wait in memory", claim.path, exc)
        # The limit for the disk is too large for memory.
        limit_bytes = min(limit_bytes, UNWRITTEN_BYTES)
        return OwnSpool(Spool(Path(MEMORY), id=claim.id, limit_bytes=limit_bytes), claim)

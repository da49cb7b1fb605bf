"""Ownership of spool files: one live instance per file; files of dead instances are taken over."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

from arrester.agents.transport.spool import MEMORY, UNWRITTEN_BYTES, Spool
from arrester.controlplane.domain.identity.uuids import uuid7

log = logging.getLogger("arrester.spool")

SUFFIX = ".sqlite"
#: SQLite's own companions of a file in WAL mode.
COMPANIONS = ("", "-wal", "-shm")


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

    def set_aside(self, why: Exception) -> None:
        """Move an unreadable file aside for inspection."""
        log.error("%s cannot be read (%s); it is kept as %s.broken", self.path, why, self.path)
        self.path.rename(f"{self.path}.broken")
        self.remove()

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
    place = folder / application
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    own: OwnSpool | None = None
    for claim in _left_behind(place):
        if own is None:
            own = _carried_on(claim, limit_bytes)
        else:
            _take_over(own.spool, claim)
    return own or _new(place, limit_bytes, now)


def _left_behind(place: Path) -> Iterator[_Claim]:
    """Yield claims on the files of dead instances, oldest first: their names sort by time."""
    for path in sorted(place.glob(f"*{SUFFIX}")):
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
        # Its holder may have deleted it meanwhile: a lock on a deleted file protects nothing.
        if os.stat(lock).st_ino == os.fstat(descriptor).st_ino:
            return _Claim(path, descriptor)
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def _lock_path(path: Path) -> Path:
    return path.with_suffix(".lock")


def _new(place: Path, limit_bytes: int, now: datetime) -> OwnSpool:
    claim = None
    while claim is None:
        claim = _claim(place / f"{uuid7(now)}{SUFFIX}")
    try:
        return OwnSpool(Spool(claim.path, id=claim.id, limit_bytes=limit_bytes), claim)
    except sqlite3.Error as exc:
        log.warning("%s cannot be created (%s); events wait in memory", claim.path, exc)
        # The limit for the disk is too large for memory.
        limit_bytes = min(limit_bytes, UNWRITTEN_BYTES)
        return OwnSpool(Spool(Path(MEMORY), id=claim.id, limit_bytes=limit_bytes), claim)


def _carried_on(claim: _Claim, limit_bytes: int) -> OwnSpool | None:
    try:
        return OwnSpool(Spool(claim.path, id=claim.id, limit_bytes=limit_bytes), claim)
    except (sqlite3.Error, ValueError) as exc:
        _leave(claim, exc)
        return None


def _take_over(spool: Spool, claim: _Claim) -> None:
    try:
        spool.adopt(claim.path)
    except sqlite3.Error as exc:
        _leave(claim, exc)
    else:
        claim.remove()


def _leave(claim: _Claim, why: Exception) -> None:
    # The disk refuses for now, or the file itself cannot be read.
    if isinstance(why, sqlite3.OperationalError):
        log.warning("%s is left to a later instance (%s)", claim.path, why)
        claim.release()
    else:
        claim.set_aside(why)

"""The check at start that a checkpoint's store lets only one of two writers create a file."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

from arrester.agents.journal.storage import CheckpointUnusable, FileExists, Storage


def check_exclusive_create(files: Storage) -> None:
    """Let two writers create one file in the checkpoint, and delete it.

    Raises CheckpointUnusable if both succeed, if none does, or if a reader sees a file that is not
    complete: then two drivers could make the same journal entry.
    """
    path = f".arrester-probe-{uuid4()}"
    contents = (b"first", b"second")
    try:
        try:
            drafts = [files.draft(path, content) for content in contents]
        except FileExists as exc:
            raise _unusable(files, "a file is visible before it is complete") from exc
        if files.exists(path):
            raise _unusable(files, "a file is visible before it is complete")
        # Both are created at the same time: a store that checks and then renames accepts both.
        with ThreadPoolExecutor(len(drafts), "arrester-probe") as pool:
            failures = list(pool.map(_failure, drafts))
        winners = [content for content, exc in zip(contents, failures, strict=True) if exc is None]
        if not winners:
            # A Java exception has its stack trace in its text.
            text = " ".join(str(failures[0]).split("\n")[:2])
            cause = getattr(failures[0], "strerror", None) or text
            raise _unusable(files, f"it created no file ({cause})") from failures[0]
        if len(winners) > 1 or files.read(path) != winners[0]:
            raise _unusable(files, "two writers created the same file")
    finally:
        files.delete(path)


def _failure(create: Callable[[], None]) -> Exception | None:
    try:
        create()
    except Exception as exc:
        return exc
    return None


def _unusable(files: Storage, reason: str) -> CheckpointUnusable:
    return CheckpointUnusable(
        f"the store of checkpoint {files.root} cannot keep two drivers apart: {reason}. "
        f"{files.remedy}"
    )

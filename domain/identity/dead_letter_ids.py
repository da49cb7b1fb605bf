"""The ids of dead letters: those that have a position, and joined ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

#: An id is this many bytes, shown as twice as many hexadecimal digits.
ID_BYTES = 16


def dead_letter_ids(
    application: str,
    pipeline: str,
    checkpoint: str,
    task: str | None,
    positions: Iterable[int],
) -> Iterator[bytes]:
    """Yield the id of a task's dead letter at each position. Spark computes the same on executors.

    The same record has the same id in each replay and run.
    """
    key = "" if task is None else f"={task}"
    prefix = hashlib.sha256(f"{application}/{pipeline}/{checkpoint}/{key}/".encode())
    for position in positions:
        digest = prefix.copy()
        digest.update(b"%d" % position)
        yield digest.digest()[:ID_BYTES]


def split_ids(packed: bytes) -> list[bytes]:
    """Return ids that were joined."""
    return [packed[at : at + ID_BYTES] for at in range(0, len(packed), ID_BYTES)]

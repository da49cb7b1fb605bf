"""Dead letters as packed columns, and the single ones of an event.

A column is a compressed list of unsigned 64-bit numbers. Positions are the differences between
neighbours, so most of them take a byte or less.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from arrester.domain.events import (
    DeadLetterColumns,
    DeadLetterIds,
    DeadLettersDiscarded,
    RecordsDeadLettered,
    RecordsRedriven,
    Run,
)
from arrester.domain.identity.dead_letter_ids import (
    ID_BYTES,
    dead_letter_ids,
    split_ids,
)

#: The most dead letters of one event.
MAX_RECORDS = 5_000
#: The sizes of a record that fit a column of the database.
MAX_SIZE = 2**31 - 1
#: Added to the first position, so that no number is negative.
_OFFSET = 2**63
_NUMBER_BYTES = 8


class DeadLetterList(NamedTuple):
    """The dead letters of one event, one value of each list for each."""

    ids: list[bytes]
    #: The position of each; None: it has none.
    positions: Sequence[int | None]
    #: The error group; None: it did not fail, or the cause is not known.
    fingerprints: list[str | None]
    #: In bytes; None: not known.
    sizes: Sequence[int | None]


def pack(
    *,
    fingerprints: Sequence[str],
    causes: Sequence[int],
    sizes: Sequence[int],
    positions: Sequence[int] | None,
    ids: Iterable[str] = (),
) -> DeadLetterColumns:
    """Return the columns of dead letters in order of position; without positions, of their ids."""
    return DeadLetterColumns(
        fingerprints=tuple(fingerprints),
        causes=_packed(causes),
        sizes=_packed([min(size, MAX_SIZE) for size in sizes]),
        positions=None if positions is None else _packed(_differences(positions)),
        ids=b"".join(map(bytes.fromhex, ids)) if positions is None else None,
    )


def size(records: DeadLetterIds) -> int:
    """Return the bytes of the columns of dead letters."""
    columns = [records.positions, records.ids]
    if isinstance(records, DeadLetterColumns):
        columns += [records.causes, records.sizes]
    return sum(len(each) for each in columns if each is not None)


def pack_ids(*, positions: Sequence[int] | None, ids: Iterable[str]) -> DeadLetterIds:
    """Return dead letters in order of position; without positions, by their ids."""
    if positions is None:
        return DeadLetterIds(ids=b"".join(map(bytes.fromhex, ids)))
    return DeadLetterIds(positions=_packed(_differences(positions)))


def redriven_ids(application: str, run: Run, data: RecordsRedriven) -> list[bytes]:
    """Return the ids of redriven dead letters; raise ValueError for invalid columns."""
    return _identified(application, run, data.task, data.count, data.records)[0]


def discarded_ids(application: str, data: DeadLettersDiscarded) -> list[bytes]:
    """Return the ids of discarded dead letters; raise ValueError for invalid columns."""
    run = Run(pipeline=data.pipeline, checkpoint=data.checkpoint, epoch=0)
    return _identified(application, run, data.task, data.count, data.records)[0]


def dead_letters_of(application: str, run: Run, data: RecordsDeadLettered) -> DeadLetterList:
    """Return the dead letters of an event.

    Of an older agent's event only the first ids are known. Raises ValueError for invalid columns.
    """
    columns = data.records
    if columns is None:
        ids = [bytes.fromhex(each) for each in data.ids if _is_id(each)]
        # The only record of an event is at its first position.
        position = data.first_position if data.count == 1 else None
        return DeadLetterList(ids, [position] * len(ids), [None] * len(ids), [None] * len(ids))
    count = data.count
    _check_count(count)
    groups = [None, *columns.fingerprints]
    causes, sizes = _unpacked(columns.causes, count), _unpacked(columns.sizes, count)
    if max(causes) >= len(groups):
        raise ValueError(f"error group {max(causes)} of {len(columns.fingerprints)}")
    if max(sizes) > MAX_SIZE:
        raise ValueError(f"a record of {max(sizes):,} bytes; at most {MAX_SIZE:,} are allowed")
    ids, positions = _identified(application, run, data.task, count, columns)
    return DeadLetterList(ids, positions, [groups[each] for each in causes], sizes)


def _check_count(count: int) -> None:
    if not 0 < count <= MAX_RECORDS:
        raise ValueError(f"{count:,} dead letters in one event; 1 to {MAX_RECORDS:,} are allowed")


def _identified(
    application: str, run: Run, task: str | None, count: int, columns: DeadLetterIds
) -> tuple[list[bytes], Sequence[int | None]]:
    """Return ids and positions."""
    _check_count(count)
    if columns.positions is not None:
        found = _positions(columns.positions, count)
        names = (application, run.pipeline, run.checkpoint, task)
        return list(dead_letter_ids(*names, found)), found
    packed = columns.ids or b""
    if len(packed) != count * ID_BYTES:
        raise ValueError(f"{len(packed)} bytes of ids for {count} dead letters")
    return split_ids(packed), [None] * count


def _is_id(text: str) -> bool:
    try:
        return len(bytes.fromhex(text)) == ID_BYTES == len(text) // 2
    except ValueError:
        return False


def _differences(positions: Sequence[int]) -> list[int]:
    return [positions[0] + _OFFSET, *(after - before for before, after in pairwise(positions))]


def _positions(packed: bytes, count: int) -> list[int]:
    found = [each - _OFFSET for each in accumulate(_unpacked(packed, count))]
    if found[-1] >= _OFFSET:
        raise ValueError(f"position {found[-1]} is too large")
    return found


def _packed(numbers: Sequence[int]) -> bytes:
    return zlib.compress(_little_endian(array("Q", numbers)).tobytes(), level=1)


def _unpacked(packed: bytes, count: int) -> array[int]:
    """Return `count` numbers; raise ValueError if there are others."""
    inflate = zlib.decompressobj()
    size = count * _NUMBER_BYTES
    try:
        unpacked = inflate.decompress(packed, size)
        is_complete = len(unpacked) == size and _ends(inflate)
    except zlib.error as exc:
        raise ValueError(f"not a packed column: {exc}") from exc
    if not is_complete:
        raise ValueError(f"a column does not have the numbers of {count} dead letters")
    numbers = array("Q")
    numbers.frombytes(unpacked)
    return _little_endian(numbers)


def _ends(inflate: zlib._Decompress) -> bool:
    """Whether the column has no more numbers."""
    return inflate.eof or (not inflate.decompress(inflate.unconsumed_tail, 1) and inflate.eof)


def _little_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers

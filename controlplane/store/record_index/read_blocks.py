"""Read the failed records of blocks, some blocks by one statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from itertools import groupby, islice
from typing import Any, Final

from arrester.controlplane.store import batches, prepared_statements
from arrester.controlplane.store.batches import READ_BYTES, BatchRow
from arrester.controlplane.store.record_index.blocks import RecordBlock
from arrester.controlplane.store.streams import LogStream
from arrester.domain.events import StoredEvent

#: So many blocks are read by one statement.
_BLOCKS: Final = 16
#: The most batches of one block that are read at once.
_BATCHES_AT_ONCE: Final = 2_000
_SIZE: Final = "(octet_length(heads) + coalesce(octet_length(bodies), 0))"
#: The batches of blocks. A batch is in the partition of the day on which it was received.
_BATCHES: Final = f"""
    SELECT number, sequence, id, received_at, heads, bodies FROM (
        SELECT wanted.number, batch.*,
            sum({_SIZE}) OVER (ORDER BY wanted.number, sequence) - {_SIZE} AS before
        FROM unnest(
            %(streams)s::int[], %(firsts)s::bigint[], %(lasts)s::bigint[], %(days)s::date[],
            %(ends)s::date[]
        ) WITH ORDINALITY AS wanted (stream, first, last, day, until, number)
        CROSS JOIN LATERAL (
            SELECT * FROM batch WHERE batch.stream = wanted.stream
                AND batch.day BETWEEN wanted.day AND wanted.until
                AND sequence <= wanted.last AND sequence >= (
                    SELECT max(early.sequence) FROM batch AS early
                    WHERE early.stream = wanted.stream AND early.day = wanted.day
                        AND early.sequence <= wanted.first
                )
        ) AS batch
    ) AS found
    WHERE before < %(most)s ORDER BY number, sequence
"""


def read_blocks(
    blocks: Iterable[RecordBlock], streams: Mapping[int, LogStream]
) -> Iterator[tuple[RecordBlock, Iterable[StoredEvent]]]:
    """Yield blocks in the given order, each with its RecordFailed events and their bodies."""
    left = iter(blocks)
    while some := list(islice(left, _BLOCKS)):
        rows = prepared_statements.rows(_BATCHES, _parameters(some), binary=True)
        is_all = sum(len(row[4]) + len(row[5] or b"") for row in rows) < READ_BYTES
        by_number = {
            number: list(of_block)
            for number, of_block in groupby(rows, key=lambda row: row[0])
            if is_all or number < rows[-1][0]
        }
        for number, block in enumerate(some, 1):
            application = streams[block.stream].application
            if number in by_number:
                yield block, _failed_records(application, block, by_number[number])
            else:
                yield block, _failed_records_of_range(application, block)


def _parameters(blocks: Sequence[RecordBlock]) -> dict[str, object]:
    days = [None if each.since is None else each.since.astimezone(UTC).date() for each in blocks]
    return {
        "streams": [each.stream for each in blocks],
        "firsts": [each.first for each in blocks],
        "lasts": [each.last for each in blocks],
        "days": days,
        "ends": [each.received_at.astimezone(UTC).date() for each in blocks],
        "most": READ_BYTES,
    }


def _failed_records(
    application: str, block: RecordBlock, rows: Iterable[Sequence[Any]]
) -> Iterator[StoredEvent]:
    for _, *values, packed in rows:
        row = BatchRow.of([application, *values])
        yield from batches.failed_records_in(row, packed, block.first - 1, block.last)


def _failed_records_of_range(application: str, block: RecordBlock) -> Iterator[StoredEvent]:
    """Yield the events of a block that is not indexed, or has many bytes."""
    after = block.first - 1
    while after < block.last:
        failures, after = batches.read_failed_records(
            application, after=after, until=block.last, most=_BATCHES_AT_ONCE
        )
        yield from failures

"""Read the failed records of blocks, some blocks by one statement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from itertools import groupby, islice
from typing import Any, Final

from arrester.controlplane.store import batches, prepared_statements
from arrester.controlplane.store.batches import READ_BYTES, BatchRow
from arrester.controlplane.store.record_index.blocks import RecordBlock
from arrester.controlplane.store.streams import LogStream
from arrester.domain.events import RecordFailed, StoredEvent
from arrester.domain.wire.failure_columns import StoredFailures, last

#: Whether a failed record is wanted, by its key and message.
HeadFilter = Callable[[str | None, str], bool]
#: So many blocks are read by one statement.
_BLOCKS: Final = 16
#: The most batches of one block that are read at once.
_BATCHES_AT_ONCE: Final = 2_000
#: The batches of blocks. A batch is in the partition of the day on which it was received.
_BATCHES: Final = """
    SELECT number, sequence, id, received_at, heads, {bodies} FROM (
        SELECT wanted.number, batch.*,
            sum({size}) OVER (ORDER BY wanted.number, sequence) - {size} AS before
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
_WITH_BODIES: Final = _BATCHES.format(
    bodies="bodies", size="(octet_length(heads) + coalesce(octet_length(bodies), 0))"
)
_HEADS: Final = _BATCHES.format(bodies="NULL::bytea", size="octet_length(heads)")


def read_blocks(
    blocks: Iterable[RecordBlock],
    streams: Mapping[int, LogStream],
    *,
    matches: HeadFilter | None = None,
) -> Iterator[tuple[RecordBlock, Iterable[StoredEvent]]]:
    """Yield blocks in the given order, each with its RecordFailed events and their bodies.

    With `matches` only the wanted events, without bodies: most are not made an object.
    """
    statement = _WITH_BODIES if matches is None else _HEADS
    left = iter(blocks)
    while some := list(islice(left, _BLOCKS)):
        rows = prepared_statements.rows(statement, _parameters(some), binary=True)
        is_all = sum(len(row[4]) + len(row[5] or b"") for row in rows) < READ_BYTES
        by_number = {
            number: list(of_block)
            for number, of_block in groupby(rows, key=lambda row: row[0])
            if is_all or number < rows[-1][0]
        }
        for number, block in enumerate(some, 1):
            application = streams[block.stream].application
            of_block = by_number.get(number)
            if matches is not None:
                yield block, _matching(application, block, of_block, matches)
            elif of_block is not None:
                yield block, _failed_records(application, block, of_block)
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


def _matching(
    application: str,
    block: RecordBlock,
    rows: Iterable[Sequence[Any]] | None,
    matches: HeadFilter,
) -> Iterator[StoredEvent]:
    """Yield the wanted events of a block; without rows, it is read in parts."""
    if rows is not None:
        for _, *values, _bodies in rows:
            yield from _matching_in(BatchRow.of([application, *values]), block, matches)
        return
    after = block.first - 1
    while after < block.last:
        batch_rows = batches.read(application, after=after, until=block.last)
        if not batch_rows:
            return
        for row in batch_rows:
            yield from _matching_in(row, block, matches)
        after = last(batch_rows[-1].elements()[-1])


def _matching_in(row: BatchRow, block: RecordBlock, matches: HeadFilter) -> Iterator[StoredEvent]:
    for each in row.elements():
        if isinstance(each, StoredFailures):
            heads = zip(each.failed.keys, each.failed.messages, strict=True)
            for index, head in enumerate(heads):
                if block.first <= each.sequence + index <= block.last and matches(*head):
                    yield each.stored_event(index)
        elif block.first <= each.sequence <= block.last:
            data = each.event.data
            if isinstance(data, RecordFailed) and matches(data.key, data.failure.message):
                yield each

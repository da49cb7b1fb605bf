"""The index of failed records: blocks of each log, with a Bloom filter of their terms.

A block is a range of a log. A term that its filter does not have is not in it. So a search reads
all filters, and then few blocks of the log. The index follows the log and is derived from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from django.db import connection, transaction

from arrester.controlplane.store import batches, prepared_statements
from arrester.controlplane.store.record_index import groups
from arrester.controlplane.store.record_index.filters import BITS, BITS_PER_TERM, filter_of
from arrester.controlplane.store.record_index.terms import fields_of, terms_of
from arrester.controlplane.store.streams import LogStream
from arrester.domain.events import RecordFailed, StoredEvent

TERMS_PER_BLOCK: Final = BITS // BITS_PER_TERM
#: The most batches that are indexed in one transaction.
_BATCHES: Final = 200
#: The order of failures in results: the time of receipt, the stream, and the position.
RecordKey = tuple[datetime, int, int]


class RecordBlock(NamedTuple):
    """A range of a log, from its `first` to its `last` position."""

    stream: int
    first: int
    last: int
    #: When its first and its last event were received; None: it is not indexed.
    since: datetime | None
    received_at: datetime

    def newest(self) -> RecordKey:
        """Return the key of its last event."""
        return self.received_at, self.stream, self.last


@dataclass(slots=True)
class _NewBlock:
    first: int
    last: int
    #: When its first and its last event were received.
    since: datetime
    received_at: datetime
    terms: set[str] = field(default_factory=set)

    @property
    def bits(self) -> int:
        """The size of the filter: larger for a record that has many terms by itself."""
        return max(BITS, -(-BITS_PER_TERM * len(self.terms) // 8) * 8)

    @property
    def is_full(self) -> bool:
        return len(self.terms) >= TERMS_PER_BLOCK

    def filter(self) -> bytes:
        """Return the Bloom filter of the terms."""
        return filter_of(self.terms, self.bits)


def index_records(stream: LogStream) -> bool:
    """Index the next events of a log, or group its blocks; return whether more is left to do.

    Nothing is done while another process indexes it.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO record_index (stream, position) VALUES (%s, 0) ON CONFLICT DO NOTHING",
            [stream.id],
        )
        cursor.execute(
            "SELECT position FROM record_index WHERE stream = %s FOR UPDATE SKIP LOCKED",
            [stream.id],
        )
        found = cursor.fetchone()
        if found is None:
            return False
        if groups.group_blocks(stream.id):
            return True
        if found[0] >= stream.sequence:
            return False
        cursor.execute(
            "DELETE FROM record_block WHERE stream = %s AND NOT closed RETURNING first", [stream.id]
        )
        after = min([found[0], *(first - 1 for (first,) in cursor)])
        events, end = batches.read_failed_records(
            stream.application, after=after, until=stream.sequence, most=_BATCHES
        )
        # An open block is read again: closed if more is left, so that each run reads new events.
        inserted = _insert(stream.id, _blocks(events), closed=end < stream.sequence)
        cursor.execute("UPDATE record_index SET position = %s WHERE stream = %s", [end, stream.id])
    return end < stream.sequence or inserted >= groups.SIZE


def index_again(stream: LogStream, position: int) -> None:
    """Index the block of a position again: a body in it was erased."""
    with transaction.atomic(), connection.cursor() as cursor:
        # Not while new events are indexed: both would insert the open block.
        cursor.execute("SELECT FROM record_index WHERE stream = %s FOR UPDATE", [stream.id])
        groups.divide_group(stream.id, position)
        cursor.execute(
            "DELETE FROM record_block WHERE stream = %s AND first <= %s AND last >= %s"
            " RETURNING first, last, closed",
            [stream.id, position, position],
        )
        row = cursor.fetchone()
        if row is not None:
            first, last, closed = row
            events, _ = batches.read_failed_records(
                stream.application, after=first - 1, until=last, most=_BATCHES
            )
            _insert(stream.id, _blocks(events), closed=closed)


def forget_blocks(before: datetime) -> None:
    """Delete the blocks whose events are dropped."""
    with connection.cursor() as cursor:
        for table in ("record_block", "record_group"):
            cursor.execute(f"DELETE FROM {table} WHERE received_at < %s", [before])


def _blocks(events: Iterable[StoredEvent]) -> Iterator[_NewBlock]:
    """Yield the blocks of some failed records; each but the last is full."""
    block: _NewBlock | None = None
    for each in events:
        assert isinstance(each.event.data, RecordFailed)
        terms = terms_of(fields_of(each.event.data, each.event.body))
        if block is not None and len(block.terms | terms) > TERMS_PER_BLOCK:
            yield block
            block = None
        if block is None:
            block = _NewBlock(each.sequence, each.sequence, each.received_at, each.received_at)
        block.last, block.received_at = each.sequence, each.received_at
        block.terms |= terms
    if block is not None:
        yield block


def _insert(stream: int, blocks: Iterable[_NewBlock], *, closed: bool = False) -> int:
    """Insert the rows of blocks; return their number."""
    rows = list(blocks)
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO record_block (stream, first, last, since, received_at, bits, closed,"
            " filter) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
            [
                [
                    *(stream, each.first, each.last, each.since, each.received_at, each.bits),
                    # Later events begin a block of their own after any but the last.
                    *(closed or number < len(rows) or each.is_full, each.filter()),
                ]
                for number, each in enumerate(rows, 1)
            ],
        )
    return len(rows)


def indexed_positions(streams: Collection[int]) -> dict[int, int]:
    """Return up to which position each log is indexed."""
    rows = prepared_statements.rows(
        "SELECT stream, position FROM record_index WHERE stream = ANY(%s::int[])", [list(streams)]
    )
    return dict(rows)

"""The blocks of the index that may have some terms."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from django.db import connection

from arrester.controlplane.store import prepared_statements
from arrester.controlplane.store.record_index.blocks import RecordBlock, RecordKey
from arrester.controlplane.store.record_index.filters import BITS, hashes, places

#: So many groups are searched first, the newest ones: frequent terms are in these.
_NEWEST: Final = 8
#: Of more terms, the longest ones are searched for: these are rare.
_TERMS: Final = 10
_COLUMNS: Final = "stream, first, last, since, received_at"
_ORDER: Final = "received_at DESC, stream DESC, last DESC"
_FIRST, _LAST = (each.replace(tzinfo=UTC) for each in (datetime.min, datetime.max))
#: Groups, each with the bits of all its blocks for some numbers.
_GROUPS: Final = f"""
    SELECT stream, first, ARRAY(
        SELECT substring(filters FROM (number %% {BITS} * size + 1)::int FOR size)
        FROM unnest(%(numbers)s::bigint[]) AS number
    )
    FROM record_group, LATERAL (SELECT octet_length(filters) / {BITS}) AS of_bit (size)
    WHERE stream = ANY(%(streams)s::int[])
        AND received_at > %(after)s::timestamptz AND since <= %(until)s::timestamptz
"""
_BLOCKS_AT: Final = """
    SELECT found.stream, firsts[place + 1] AS first, lasts[place + 1] AS last,
        sinces[place + 1] AS since, received_ats[place + 1] AS received_at
    FROM unnest(%(of_streams)s::int[], %(of_firsts)s::bigint[], %(of_places)s::int[])
        AS found (stream, first, place)
    JOIN record_group AS own ON own.stream = found.stream AND own.first = found.first
"""


def candidate_blocks(
    streams: Sequence[int], terms: Collection[str], *, before: RecordKey | None, most: int
) -> Iterator[RecordBlock]:
    """Yield blocks that may have all terms, newest first; at most `most` of the older ones.

    They have events before a key; None: any.
    """
    longest = sorted(terms, key=lambda term: (-len(term), term))[:_TERMS]
    search = _Search([*streams], [number for term in longest for number in hashes(term)], before)
    boundary = search.boundary()
    if boundary is not None:
        yield from search.blocks(after=boundary)
    yield from search.blocks(until=boundary or _LAST, most=most)


@dataclass(frozen=True, slots=True)
class _Search:
    streams: list[int]
    #: The numbers of all terms.
    numbers: list[int]
    before: RecordKey | None

    def boundary(self) -> datetime | None:
        """Return the time of receipt of the first older group; None: there are few groups."""
        rows = prepared_statements.rows(
            "SELECT received_at FROM record_group WHERE stream = ANY(%s::int[])"
            " AND since <= %s::timestamptz ORDER BY received_at DESC OFFSET %s LIMIT 1",
            [self.streams, _LAST if self.before is None else self.before[0], _NEWEST],
            binary=True,
        )
        return rows[0][0] if rows else None

    def blocks(
        self, *, after: datetime = _FIRST, until: datetime = _LAST, most: int | None = None
    ) -> list[RecordBlock]:
        """Return candidates received after one time and until another, newest first."""
        values = {"streams": self.streams, "after": after, "until": until, "most": most}
        found = [*self._of_groups(values), *self._of_rows(values)]
        return sorted(found, key=RecordBlock.newest, reverse=True)[:most]

    def _of_rows(self, values: dict[str, object]) -> list[RecordBlock]:
        """Return candidates that are in no group."""
        bits = (f"get_bit(filter, {number} %% bits) = 1" for number in self.numbers)
        return self._read(f"SELECT * FROM record_block WHERE {' AND '.join(bits)}", values)

    def _of_groups(self, values: dict[str, object]) -> list[RecordBlock]:
        """Return candidates that are in groups."""
        groups = prepared_statements.rows(_GROUPS, {**values, "numbers": self.numbers}, binary=True)
        found = [(stream, first, place) for stream, first, bits in groups for place in places(bits)]
        if not found:
            return []
        of_streams, of_firsts, of_places = map(list, zip(*found, strict=True))
        of_groups = {"of_streams": of_streams, "of_firsts": of_firsts, "of_places": of_places}
        return self._read(_BLOCKS_AT, {**values, **of_groups})

    def _read(self, blocks: str, values: dict[str, object]) -> list[RecordBlock]:
        conditions = [
            "stream = ANY(%(streams)s::int[])",
            "received_at > %(after)s::timestamptz AND received_at <= %(until)s::timestamptz",
        ]
        if self.before is not None:
            conditions.append("(since, stream, first) < (%(since)s, %(stream)s, %(first)s)")
            values = {**values, **dict(zip(("since", "stream", "first"), self.before, strict=True))}
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT {_COLUMNS} FROM ({blocks}) AS block WHERE {' AND '.join(conditions)}"
                f" ORDER BY {_ORDER} LIMIT %(most)s",
                values,  # type: ignore[arg-type]  # psycopg takes any object
            )
            return [RecordBlock(*row) for row in cursor.fetchall()]

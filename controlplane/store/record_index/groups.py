"""Groups of blocks, whose filters are ordered by bit: a search reads a few bits of each group.

All filters of a large log would take a search longer to read than the records that it finds.
"""

from __future__ import annotations

from typing import Final

from django.db import connection

from arrester.controlplane.store.record_index.filters import BITS, transposed

#: The number of blocks in a group.
SIZE: Final = 256


def group_blocks(stream: int) -> bool:
    """Replace the oldest complete blocks of a log by a group; return whether there were enough."""
    oldest = (
        "(SELECT first FROM record_block WHERE stream = %s AND closed AND bits = %s"
        " ORDER BY first LIMIT %s)"
    )
    parameters = [stream, BITS, SIZE]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {oldest} AS oldest", parameters)
        if cursor.fetchone()[0] < SIZE:
            return False
        cursor.execute(
            f"DELETE FROM record_block WHERE stream = %s AND first IN {oldest}"
            " RETURNING first, last, since, received_at, filter",
            [stream, *parameters],
        )
        rows = sorted(cursor.fetchall())
        firsts, lasts, sinces, received_ats, filters = map(list, zip(*rows, strict=True))
        ends = [firsts[0], max(lasts), min(sinces), max(received_ats)]
        cursor.execute(
            "INSERT INTO record_group (stream, first, last, since, received_at, firsts, lasts,"
            " sinces, received_ats, filters) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            [stream, *ends, firsts, lasts, sinces, received_ats, b"".join(transposed(filters))],
        )
    return True


def divide_group(stream: int, position: int) -> None:
    """Replace the group of a log position by its blocks, if it is in one."""
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM record_group WHERE stream = %s AND first <= %s AND last >= %s"
            " RETURNING firsts, lasts, sinces, received_ats, filters",
            [stream, position, position],
        )
        for *columns, filters in cursor.fetchall():
            size = len(filters) // BITS
            bits = [bytes(filters[at : at + size]) for at in range(0, len(filters), size)]
            cursor.executemany(
                "INSERT INTO record_block (stream, first, last, since, received_at, bits, closed,"
                " filter) VALUES (%s, %s, %s, %s, %s, %s, true, %s)",
                [
                    [stream, *block, BITS, filter]
                    for *block, filter in zip(*columns, transposed(bits), strict=True)
                ],
            )

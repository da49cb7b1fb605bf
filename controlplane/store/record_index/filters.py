"""Bloom filters of the terms of failed records."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial, reduce
from hashlib import blake2b
from operator import and_
from struct import Struct
from typing import Final

#: One of 7,000 blocks without a term passes its filter.
BITS_PER_TERM: Final = 20
_HASHES: Final = 8
#: The size of a filter. With other columns, a row of it fits four times into a page of PostgreSQL.
BITS: Final = 8 * 1_900
_ONE: Final = ord("1")
_numbers = Struct(f"<{_HASHES}I").unpack
_digest = partial(blake2b, digest_size=4 * _HASHES)


def hashes(term: str) -> tuple[int, ...]:
    """Return the numbers of a term; each modulo the size of a filter is one of its bits."""
    return _numbers(_digest(term.encode(errors="replace")).digest())


def filter_of(terms: Collection[str], bits: int) -> bytes:
    """Return the Bloom filter of some terms."""
    # As the digits of a number, the last bit first: faster than to set the bits of bytes.
    digits = bytearray(b"0" * bits)
    for term in terms:
        for number in hashes(term):
            digits[~(number % bits)] = _ONE
    return int(digits, 2).to_bytes(bits // 8, "little")


def transposed(rows: Sequence[bytes]) -> list[bytes]:
    """Return the columns of a table of bits; the numbers of rows and columns are multiples of 8."""
    columns, size = 8 * len(rows[0]), len(rows) // 8
    # The last row first, and within each the last bit: a slice is the digits of a number.
    digits = "".join(
        format(int.from_bytes(each, "little"), f"0{columns}b") for each in reversed(rows)
    )
    return [
        int(digits[place::columns], 2).to_bytes(size, "little")
        for place in reversed(range(columns))
    ]


def places(bits: Sequence[bytes]) -> Iterator[int]:
    """Yield the places of filters that have all of some bits.

    Each of `bits` has the bit of all filters.
    """
    found = reduce(and_, (int.from_bytes(each, "little") for each in bits))
    while found:
        lowest = found & -found
        yield lowest.bit_length() - 1
        found ^= lowest

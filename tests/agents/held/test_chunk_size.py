"""The size of chunks follows the time that their records take, not that of their jobs."""

from __future__ import annotations

from itertools import pairwise

import pytest

from arrester.agents.held.chunk_size import SECONDS_MAX, SECONDS_MIN, ChunkSize


@pytest.mark.parametrize("of_jobs", [0.1, 3.0, 10.0, 60.0])
@pytest.mark.parametrize("per_record", [1e-6, 1e-5, 1e-3, 0.1, 10.0])
def test_chunks_take_some_seconds_for_their_records(of_jobs: float, per_record: float) -> None:
    size = ChunkSize(records=10_000)
    late = []
    for number in range(60):
        records = size.records
        size.adapt(records, seconds=of_jobs + per_record * records)
        if number >= 40:
            late.append(per_record * records)

    assert max(late) <= SECONDS_MAX or size.records == 1
    assert min(late) >= SECONDS_MIN / 2


def test_chunks_do_not_shrink_where_only_the_jobs_are_slow() -> None:
    size = ChunkSize(records=10_000)
    for _ in range(20):
        size.adapt(size.records, seconds=30.0)

    assert size.records > 100_000


def test_chunks_shrink_where_each_record_is_slow() -> None:
    size = ChunkSize(records=10_000)
    for _ in range(20):
        size.adapt(size.records, seconds=0.01 * size.records)

    assert 200 <= size.records <= 500


def test_chunks_do_not_grow_if_fewer_records_are_held() -> None:
    size = ChunkSize(records=10_000)
    for _ in range(5):
        size.adapt(3_000, seconds=0.1)

    assert size.records == 10_000


def test_chunks_without_records_change_nothing() -> None:
    size = ChunkSize(records=10_000)
    for _ in range(3):
        size.adapt(0, seconds=0.1)

    assert size.records == 10_000


def test_a_million_fast_records_take_few_chunks() -> None:
    size = ChunkSize(records=10_000)
    left, chunks = 1_000_000, []
    while left:
        chunks.append(min(size.records, left))
        left -= chunks[-1]
        size.adapt(chunks[-1], seconds=1.0 + 1e-6 * chunks[-1])

    assert len(chunks) <= 4
    assert all(later <= 8 * one for one, later in pairwise(chunks))

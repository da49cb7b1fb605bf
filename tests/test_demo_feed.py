"""The input of the demo: it comes again and again, and takes no more space with time."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arrester.examples import flights_data
from arrester.examples.flights_data import FILE_SECONDS, Feed


def read(folder: Path) -> list[tuple[int, str]]:
    files = sorted(folder.glob("*.parquet"))
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return [(row["position"], row["value"]) for row in rows]


@pytest.fixture
def table() -> pa.Table:
    rows = [
        {"position": number, "origin": "JFK", "flight": "UA1", "value": f"line {number}"}
        for number in range(5)
    ]
    return pa.Table.from_pylist(rows, flights_data.COLUMNS)


def test_the_table_comes_again_under_new_positions(table: pa.Table, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "feed", rows_per_second=2)
    for number in range(3):
        feed.write(table, number)
    expected = [(position, f"line {position % 5}") for position in range(3 * 2 * FILE_SECONDS)]
    assert read(feed.folder) == expected
    assert not list(feed.folder.glob(".*"))


def test_a_restart_continues_and_old_files_are_deleted(
    table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flights_data, "KEPT_FILES", 2)
    feed = Feed(tmp_path, rows_per_second=1)
    for number in range(4):
        feed.write(table, number)
    assert [each.stem for each in sorted(tmp_path.glob("*.parquet"))] == ["000000002", "000000003"]
    assert Feed(tmp_path, rows_per_second=1)._next_number() == 4


def test_the_feed_writes_the_real_table_while_its_block_runs(tmp_path: Path) -> None:
    with Feed(tmp_path, rows_per_second=10) as feed:
        pass
    [(first, line), *_] = read(feed.folder)
    assert (first, line.split(",")[:3]) == (0, ["2013", "1", "1"])

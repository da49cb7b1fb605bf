"""What a run that was killed left of its dead letters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from arrester.agents.dead_letters.destinations import FolderDestination
from arrester.agents.dead_letters.pending_files import FOLDER, PendingDeadLetters
from arrester.agents.journal.entries import DeadLetters
from arrester.agents.journal.storage import LocalStorage

DEAD_LETTERS = DeadLetters(name="c-0001-1", day="2026-11-25")


def pending_in(folder: Path, spark: Any = None) -> PendingDeadLetters:
    return PendingDeadLetters(spark=spark, files=LocalStorage(str(folder)))


@pytest.mark.parametrize(
    ("found", "pending"),
    [
        # Written completely, or while they are being written to their destination.
        (["c-0001-1"], "c-0001-1"),
        # Killed after their delivery, while they were being deleted.
        (["c-0001-1", "c-0001-1.written"], None),
        (["c-0001-1.written"], None),
        ([], None),
        # Killed before the entry of other dead letters.
        (["c-0001-1", "c-0002-1"], "c-0001-1"),
    ],
)
def test_what_a_killed_run_left_of_dead_letters_is_pending_or_deleted(
    tmp_path: Path, found: list[str], pending: str | None
) -> None:
    files = pending_in(tmp_path)
    for name in found:
        files.files.create(f"{FOLDER}/{name}/part", b"")
    left = files.recovered(DEAD_LETTERS)
    assert (None if left is None else left.folder or left.name) == pending

    files.delete_all_but([] if left is None else [left], files.names())

    assert files.names() == ([] if pending is None else [pending])


def test_dead_letters_whose_deletion_was_interrupted_are_not_written_again(tmp_path: Path) -> None:
    class Killed(LocalStorage):
        def delete(self, path: str) -> None:
            if path.endswith(DEAD_LETTERS.name):
                super().delete(f"{path}/part-1")
                raise OSError("killed")
            super().delete(path)

    files = PendingDeadLetters(spark=None, files=Killed(str(tmp_path)))  # type: ignore[arg-type]
    for part in (1, 2):
        files.files.create(f"{FOLDER}/{DEAD_LETTERS.name}/part-{part}", b"")
    with pytest.raises(OSError, match="killed"):
        files.delete(DEAD_LETTERS)

    assert pending_in(tmp_path).recovered(DEAD_LETTERS) is None


@pytest.mark.spark
def test_the_pending_ones_of_an_entry_get_a_folder_that_its_next_entry_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = pending_in(tmp_path, spark)
    rows = spark.createDataFrame([("a", 1), ("b", 2)], "id string, position long")
    rows.write.parquet(files.path(DEAD_LETTERS))

    part = files.keep_only(DEAD_LETTERS, ["b"])

    assert [row["id"] for row in files.read(part).collect()] == ["b"]
    assert part.name == DEAD_LETTERS.name
    # Killed before that entry: all of them are written again.
    assert files.recovered(DEAD_LETTERS) == DEAD_LETTERS
    # And after it: the others are not.
    assert files.recovered(part) == part
    files.delete_all_but([part], files.names())
    assert files.names() == [part.folder]
    # They are stored once if the same ones are rejected again.
    assert files.keep_only(part, ["b"]) == part


@pytest.mark.spark
def test_a_folder_of_dead_letters_is_written_once_and_replaced_if_it_is_incomplete(
    spark: SparkSession, tmp_path: Path
) -> None:
    destination = FolderDestination(spark=spark, format="json", path=str(tmp_path))
    place = Path(destination.location(DEAD_LETTERS))
    rows = spark.createDataFrame([("a", 1)], "id string, position long")
    # A run was killed while Spark wrote the folder.
    place.mkdir(parents=True)
    (place / "part-00000.json").write_text('{"id":"half"}')

    destination.write(rows, DEAD_LETTERS)
    first = sorted(path.name for path in place.iterdir())
    destination.write(rows, DEAD_LETTERS)

    assert [row["id"] for row in spark.read.json(str(place)).collect()] == ["a"]
    assert sorted(path.name for path in place.iterdir()) == first

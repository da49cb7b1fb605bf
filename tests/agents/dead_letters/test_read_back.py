"""Dead letters that are read back from files: exactly, and without damaged files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from arrester.agents.dead_letters import read_back
from arrester.agents.dead_letters.destinations import FolderDestination, SparkDestination
from arrester.agents.dead_letters.read_back import DeadLetterRequest, DeadLettersUnreadable
from arrester.agents.journal.entries import DeadLetters
from arrester.agents.spark.frames.local_checkpoint import Checkpoints, releasing
from arrester.agents.spark.jvm.session import has_data_source
from arrester.domain.errors import InvalidValue
from arrester.domain.python_versions import UTC
from tests import delta_lake
from tests.parameters import long_for

pytestmark = pytest.mark.spark

AT = datetime(2026, 11, 26, 23, 59, 59, 123_456, UTC)
CHECKPOINT = "0190"
#: What a careless format changes: quotes, line breaks, white space, escapes, other scripts.
ROW = '{"value":"  a \\"b\\" \\\\ \\n\\u0000 é 漢 😀 ","other":null,"bytes":"AP8="}\n'
SCHEMA = (
    "id string, application string, checkpoint string, task string, position long, stage string,"
    " message string, row string, at timestamp"
)


@pytest.fixture
def checkpoints() -> Iterator[Checkpoints]:
    with releasing() as made:
        yield made


def dead_letter(number: int, **more: Any) -> dict[str, Any]:
    """Return a dead letter with all columns that matter."""
    usual = {
        "id": f"{number:032x}",
        "application": "tests",
        "checkpoint": CHECKPOINT,
        "task": "a",
        "position": number,
        "stage": "deserialize",
        "message": 'two\nlines, "quoted"',
        "row": ROW,
        "at": AT,
    }
    return usual | more


def write(
    place: SparkDestination, name: str, *rows: dict[str, Any], day: str = "2026-11-26"
) -> Path:
    frame = place.spark.createDataFrame([tuple(row.values()) for row in rows], SCHEMA)
    place.write(frame.coalesce(1), DeadLetters(name=name, day=day))
    return Path(str(place.path)) / f"day={day}" / name


def folder(spark: SparkSession, path: Path, format: str = "parquet") -> FolderDestination:
    if not has_data_source(spark, format):
        pytest.skip(f"this Spark has no {format}")
    return FolderDestination(spark=spark, format=format, path=str(path))


def request(*numbers: int, since: datetime = AT, until: datetime = AT) -> DeadLetterRequest:
    ids = [f"{number:032x}" for number in numbers]
    return DeadLetterRequest(checkpoint=CHECKPOINT, ids=ids, since=since, until=until)


@pytest.mark.parametrize("format", ["parquet", "orc", "json", "avro"])
def test_each_format_returns_what_was_written(
    spark: SparkSession, tmp_path: Path, checkpoints: Checkpoints, format: str
) -> None:
    place = folder(spark, tmp_path, format)
    rows = [dead_letter(1), dead_letter(2, task=None, position=None, stage=None), dead_letter(3)]
    write(place, f"{CHECKPOINT}-1-1", *rows)
    write(place, f"{CHECKPOINT}-2-1", dead_letter(4))

    found = place.read(request(1, 2, 4, 9), checkpoints)

    assert found.unreadable == ()
    by_id = {row["id"]: row.asDict() for row in found.rows.collect()}
    assert sorted(by_id) == [f"{number:032x}" for number in (1, 2, 4)]
    with_zone = by_id[f"{1:032x}"]
    assert with_zone["at"].astimezone(UTC) == AT
    expected = {name: value for name, value in dead_letter(1).items() if name in with_zone}
    assert {**with_zone, "at": AT} == expected
    assert by_id[f"{2:032x}"]["task"] is None
    assert by_id[f"{2:032x}"]["position"] is None


def test_only_complete_folders_of_the_checkpoint_near_the_time_are_read(
    spark: SparkSession, tmp_path: Path, checkpoints: Checkpoints
) -> None:
    place, days = folder(spark, tmp_path), [f"2026-11-{day}" for day in range(24, 29)]
    for number, day in enumerate(days):
        write(place, f"{CHECKPOINT}-{number}-1", dead_letter(number), day=day)
    incomplete = write(place, f"{CHECKPOINT}-7-1", dead_letter(7))
    (incomplete / "_SUCCESS").unlink()
    write(place, "another-8-1", dead_letter(8, checkpoint="another"))

    found = place.read(request(*range(9)), checkpoints)

    # One day at both sides: an operator's skip has the time of its command.
    assert sorted(row["position"] for row in found.rows.collect()) == [1, 2, 3]
    later = request(*range(9), since=AT - timedelta(days=1), until=AT + timedelta(days=1))
    assert place.read(later, checkpoints).rows.count() == 5


def test_nothing_is_found_without_a_folder_or_ids(
    spark: SparkSession, tmp_path: Path, checkpoints: Checkpoints
) -> None:
    missing = folder(spark, tmp_path / "missing").read(request(1), checkpoints)
    assert (missing.rows.count(), missing.unreadable) == (0, ())
    place = folder(spark, tmp_path)
    write(place, f"{CHECKPOINT}-1-1", dead_letter(1))
    assert place.read(request(), checkpoints).rows.columns == missing.rows.columns
    assert place.read(request(), checkpoints).rows.count() == 0


@pytest.mark.parametrize("format", long_for(["parquet", "orc", "json", "avro"], ["orc", "avro"]))
def test_a_damaged_file_is_named_and_the_others_are_read(
    spark: SparkSession, tmp_path: Path, checkpoints: Checkpoints, format: str
) -> None:
    place = folder(spark, tmp_path, format)
    for number in range(3):
        damaged = write(place, f"{CHECKPOINT}-{number}-1", dead_letter(number))
    [file] = damaged.glob("part-*")
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    # Spark's checksum of the earlier content is not what is tested.
    file.with_name(f".{file.name}.crc").unlink()

    found = place.read(request(*range(3)), checkpoints)

    assert sorted(row["position"] for row in found.rows.collect()) == [0, 1]
    [unreadable] = found.unreadable
    assert unreadable.file == str(file)
    assert unreadable.problem


def test_many_damaged_files_are_an_error(
    spark: SparkSession, tmp_path: Path, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_back, "_UNREADABLE_FILES", 2)
    place = folder(spark, tmp_path)
    for number in range(3):
        [file] = write(place, f"{CHECKPOINT}-{number}-1", dead_letter(number)).glob("part-*")
        file.write_bytes(b"x" * 100)
        file.with_name(f".{file.name}.crc").unlink()
    with pytest.raises(DeadLettersUnreadable, match="more than 2 files"):
        place.read(request(1), checkpoints)


def test_a_delta_table_is_read_back(
    spark: SparkSession, tmp_path: Path, checkpoints: Checkpoints
) -> None:
    if not delta_lake.archives():
        pytest.skip("there is no Delta for this Spark")
    place = SparkDestination(spark=spark, format="delta", path=str(tmp_path / "table"))
    assert place.read(request(1), checkpoints).rows.collect() == []
    for day, number in (("2026-11-26", 1), ("2026-11-27", 2), ("2026-11-29", 3)):
        write(place, "", dead_letter(number), day=day)

    rows = place.read(request(1, 2, 3), checkpoints).rows.collect()

    assert sorted(row["position"] for row in rows) == [1, 2]
    assert {(row["row"], row["at"].astimezone(UTC)) for row in rows} == {(ROW, AT)}
    for file in (tmp_path / "table").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(
        DeadLettersUnreadable, match=r"errors\.dlq\.path=.*the table cannot be read"
    ):
        place.read(request(1), checkpoints)


def test_other_destinations_are_refused(
    spark: SparkSession, tmp_path: Path, checkpoints: Checkpoints
) -> None:
    sink = SparkDestination(spark=spark, format="jdbc", path=None)
    xml = FolderDestination(spark=spark, format="xml", path=str(tmp_path))
    for place in (folder(spark, tmp_path, "csv"), xml, sink):
        expected = rf"errors\.dlq\.format: '{place.format}' is not allowed.*agent\.redrive"
        with pytest.raises(InvalidValue, match=expected):
            place.read(request(1), checkpoints)

"""The driver writes files of its rows as Spark's jobs write them, without a job."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from arrester.agents.dead_letters.destinations import FolderDestination
from arrester.agents.journal.entries import DeadLetters
from arrester.agents.spark.jvm.stored_rows import to_driver
from arrester.agents.spark.jvm.stores import driver_files
from arrester.agents.spark.jvm.stores.driver_files import rows_on_driver, write_folder
from arrester.agents.spark.session_conf import exact_parquet
from tests.agents.batch.test_job_counts import jobs_of

pytestmark = pytest.mark.spark

#: Of each type of a dead letter's columns, and nested ones.
ROWS = """
    SELECT CASE WHEN id % 2 = 0 THEN 'é "quoted" ' || id END AS text, id AS number,
        timestamp'1812-09-07 10:30:00.123456' AS at, date'0001-01-01' AS day,
        unhex('00FF') AS bytes, id % 2 = 1 AS flag, decimal(1.50) AS price,
        array(id, NULL) AS many, named_struct('a', id, 'b', CAST(NULL AS STRING)) AS nested,
        map('key', id) AS pairs, CAST(NULL AS STRING) AS nothing
    FROM range(3)
"""


def rows(spark: SparkSession, sql: str = ROWS) -> DataFrame:
    return to_driver(spark.sql(sql)).coalesce(1)


def files_in(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.name[0] not in "._")


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("json", {}),
        ("json", {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "ignoreNullFields": "no"}),
        ("json", {"compression": "gzip"}),
        ("parquet", {}),
        ("parquet", {"compression": "gzip"}),
    ],
)
def test_a_file_of_the_driver_has_the_name_and_content_of_a_job_s(
    spark: SparkSession, tmp_path: Path, format: str, options: dict[str, str]
) -> None:
    options = {name: "false" if value == "no" else value for name, value in options.items()}
    frame = rows(spark)
    with exact_parquet(spark):
        frame.write.format(format).options(**options).save(str(tmp_path / "job"))
        local = rows_on_driver(frame, format)
        assert local is not None
        write = partial(
            write_folder, local, str(tmp_path / "driver"), format=format, options=options
        )
        assert jobs_of(spark, write) == 0

    (job,), (driver,) = files_in(tmp_path / "job"), files_in(tmp_path / "driver")
    # part-00000-<uuid>[-c000].<suffix>
    assert job.name.partition("c000")[2] == driver.name[len("part-00000-") + 36 :]
    if options.get("compression") is None and format == "json":
        assert job.read_text() == driver.read_text()
    read = [spark.read.format(format).load(str(tmp_path / each)) for each in ("job", "driver")]
    assert read[0].schema == read[1].schema
    assert read[0].collect() == read[1].collect()
    assert read[1].count() == 3


def test_columns_of_rows_on_the_driver_are_selected_without_a_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    local = rows_on_driver(rows(spark).drop("text").selectExpr("number", "1 AS version"), "json")
    assert local is not None
    assert jobs_of(spark, lambda: write_folder(local, str(tmp_path), format="json")) == 0
    (file,) = files_in(tmp_path)
    assert file.read_text().splitlines()[0] == '{"number":0,"version":1}'


def test_all_rows_are_written_in_order(spark: SparkSession, tmp_path: Path) -> None:
    local = rows_on_driver(rows(spark, "SELECT id FROM range(5000)"), "parquet")
    assert local is not None
    write_folder(local, str(tmp_path), format="parquet")
    assert [row.id for row in spark.read.parquet(str(tmp_path)).collect()] == list(range(5_000))


def test_other_rows_and_formats_are_left_to_spark(spark: SparkSession) -> None:
    assert rows_on_driver(rows(spark), "orc") is None
    assert rows_on_driver(spark.range(1), "json") is None
    assert rows_on_driver(rows(spark).select("text").distinct(), "json") is None
    assert rows_on_driver(rows(spark), "json") is not None


def test_a_file_that_the_driver_did_not_complete_is_replaced(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = FolderDestination(spark=spark, format="json", path=str(tmp_path))
    dead_letters = DeadLetters(name="c-0001-1", day="2026-11-25")
    folder = tmp_path / "day=2026-11-25" / "c-0001-1"

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(driver_files, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            destination.write(rows(spark), dead_letters)
    assert files_in(folder) == []

    local = rows(spark)
    assert jobs_of(spark, lambda: destination.write(local, dead_letters)) == 0
    (file,) = files_in(folder)
    assert len(file.read_text().splitlines()) == 3
    assert sorted(each.name for each in folder.iterdir() if each.name[0] != ".") == [
        "_SUCCESS",
        file.name,
    ]

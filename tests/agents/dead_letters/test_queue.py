"""Dead letters in any Spark sink: written once, or again under the same ID, and never lost."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from arrester.agents.dead_letters.destinations import DeadLettersUnusable, SparkDestination
from arrester.agents.dead_letters.diagnoses import diagnosis_of
from arrester.agents.dead_letters.pending_files import FOLDER
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.failures.fingerprint_sql import fingerprint_sql
from arrester.agents.failures.fingerprints import failure_at
from arrester.agents.handlers import LogAndContinue
from arrester.agents.journal.entries import DeadLetters
from arrester.agents.spark.errors import Problem
from arrester.agents.worker.columns import POSITION, TASK
from arrester.domain.events import (
    DeadLettersFailed,
    FailuresCounted,
    RecordFailed,
    RecordsDeadLettered,
    ThreadDied,
)
from arrester.domain.wire.dead_letter_columns import dead_letters_of
from tests.agents.pipeline_bench import APPLICATION, Bench, levels_of, server_state, sink_to
from tests.parameters import long_for
from tests.patience import wait_until

pytestmark = pytest.mark.spark

Row = dict[str, Any]
PATH = "errors.dlq.path"


def check(row: Row) -> Row:
    if row["value"] == "bad":
        raise ValueError(f"bad at {row['position']}")
    return row


def waiting(bench: Bench) -> list[Path]:
    return list((Path(bench.checkpoint) / FOLDER).glob("*"))


@pytest.mark.parametrize("kind", long_for(["json", "orc", "csv", "xml"], ["orc", "csv", "xml"]))
def test_each_file_format_has_each_dead_letter_once_in_the_folder_of_its_day(
    bench: Bench, kind: str
) -> None:
    if kind == "xml" and bench.spark.version.startswith("3."):
        pytest.skip("this Spark has no such format")
    options: dict[str, dict[str, Any]] = {
        "csv": {"errors_dlq_options_header": "true"},
        "xml": {"errors_dlq_options_rowTag": "letter"},
    }
    bench.add(("a", 0, "bad"), ("a", 1, "x"), ("b", 0, "bad"))
    bench.start(
        bench.checking(check, LogAndContinue()),
        errors_dlq_format=kind,
        errors_dlq_include_configs=True,
        **options.get(kind, {}),
    )
    bench.wait_for_input()
    bench.stop()

    reader = bench.spark.read.format(kind).options(header=True, rowTag="letter")
    frame = reader.options(multiLine=kind in ("csv", "xml")).load(str(bench.folder / "dlq"))
    dead_letters = frame.withColumn("position", frame.position.cast("long")).collect()
    assert sorted((row["task"], row["position"]) for row in dead_letters) == [("a", 0), ("b", 0)]
    assert all('"value":"bad"' in row["row"] for row in dead_letters)
    assert all(f"{check.__module__}.check" in row["configs"] for row in dead_letters)
    assert waiting(bench) == []
    delivered = bench.outbox.of(RecordsDeadLettered)
    assert {(each.task, each.count, each.format) for each in delivered} == {
        ("a", 1, kind),
        ("b", 1, kind),
    }
    assert {(each.task, each.ids) for each in delivered} == {
        (row["task"], (row["id"],)) for row in dead_letters
    }
    [place] = {each.place for each in delivered}
    assert list(Path(place).glob(f"*.{kind}"))


def test_a_later_micro_batch_compiles_no_code(bench: Bench) -> None:
    jvm: Any = bench.spark._jvm
    compiled = jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    counts = []
    bench.start(bench.checking(check, LogAndContinue()))
    for number in range(3):
        bench.add(("a", 2 * number, "bad"), ("a", 2 * number + 1, "x"))
        bench.wait_for_input()
        counts.append(compiled.getCount())
    assert counts[0] > 0
    assert counts[1] == counts[2]


def test_events_have_the_ids_and_causes_of_all_dead_letters(bench: Bench) -> None:
    """Also of native failures that are counted only, and of records without a position."""

    def check_value(row: Row) -> Row:
        if row["value"] == "key":
            raise KeyError(f"no 'name' in {row['position']}")
        return check(row)

    builder = bench.define(on_error=LogAndContinue()).columns(
        "number",
        n=F.expr("if(value = 'text', CAST(value AS INT), 1)"),
        on_error=LogAndContinue(),
    )
    pipeline = builder.process("check", check_value, on_error=LogAndContinue()).write(
        sink_to(bench.folder / "out")
    )
    values = ["bad", "text", "key", "x"]
    records = [("a", 3 * n - 7, values[n % 4]) for n in range(40)]
    bench.add(*records, ("b", None, "x"), ("b", None, "x"), ("b", 1, "bad"), (None, 2, "bad"))
    bench.start(pipeline, errors_examples_limit=3)
    bench.wait_for_input()
    bench.stop()

    rows = bench.dead_letters()
    reported = [
        (event.data.task, id.hex(), position, fingerprint, size)
        for event in bench.outbox.events
        if isinstance(event.data, RecordsDeadLettered) and event.run is not None
        for id, position, fingerprint, size in zip(
            *dead_letters_of(APPLICATION, event.run, event.data), strict=True
        )
    ]
    assert {each[:3] for each in reported} == {
        (row["task"], row["id"], row["position"]) for row in rows
    }
    assert len(reported) == len(rows) == 34
    by_id = {row["id"]: row for row in rows}
    assert all(size == len(by_id[id]["row"]) for _, id, _, _, size in reported)
    positions = [position or 0 for task, _, position, _, _ in reported if task == "a"]
    assert positions == sorted(positions)

    counted: Counter[str | None] = Counter()
    for failed in bench.outbox.of(RecordFailed):
        counted[failed.failure.fingerprint] += failed.count
    for more in bench.outbox.of(FailuresCounted):
        counted[more.failure.fingerprint] += more.count
    assert counted == Counter(fingerprint for *_, fingerprint, _ in reported)
    assert sorted(counted.values()) == [2, 10, 10, 12]


def test_a_diagnosis_is_that_of_the_record_also_without_task_or_position(bench: Bench) -> None:
    builder = bench.define().columns("number", n=F.expr("CAST(value AS INT)"))
    pipeline = builder.write(sink_to(bench.folder / "out"))
    places = [(task, at) for task in (None, "", "a") for at in (None, 0, 1)]
    frame = bench.spark.createDataFrame(places, f"{TASK} string, {POSITION} long")
    row = frame.collect()[0]
    diagnosed = [
        FailedRecord(
            task=task,
            position=position,
            entry=0,
            number=1,
            stage="number",
            problem=Problem(exception_class="X", message=f"{task} at {position}"),
            row=row,
            key=None,
            value=None,
        )
        # The others were not diagnosed.
        for task, position in places
        if position != 1
    ]
    message = diagnosis_of(pipeline, diagnosed)["message"]
    found = frame.select(TASK, POSITION, message).collect()
    assert [each[2] for each in found] == [
        f"{task} at {position}" if position != 1 else None for task, position in places
    ]


def test_the_fingerprint_in_spark_is_that_of_python(bench: Bench) -> None:
    texts = [
        "",
        "bad at 17, not 3.5",
        'x \'a"b\' "c"',
        "0xAF 0193476e-0000-7000",
        " \t\u00a0e\u0663 ",
    ]
    inner = [
        (None, None, None),
        ("java.P", None, None),
        ("java.P", "CANNOT.Y", "amount"),
        (None, "CANNOT.Y", ""),
        ("", None, "\u00e9"),
    ]
    rows: list[tuple[Any, ...]] = [
        (stage, name, condition, frame, text * times, *inner[number % len(inner)])
        for stage in ("produce", "process:\u00e9")
        for name, condition in (("builtins.ValueError", None), ("java.E", "CAST.X"), ("E", ""))
        for frame in (None, "", "a.py:1 in f")
        for number, (text, times) in enumerate(product(texts, (1, 700, 1, 2, 3)))
    ]
    names = "stage exception_class condition frame message inner_class inner_condition field"
    fields = names.split()
    frame = bench.spark.createDataFrame(rows, ", ".join(f"{name} string" for name in fields))
    expression = fingerprint_sql(stage="stage", error="error")
    packed = frame.coalesce(1).withColumn("error", F.struct(*fields)).selectExpr(expression)
    wanted = [
        failure_at(stage, Problem(**dict(zip(fields[1:], values, strict=True)))).fingerprint
        for stage, *values in rows
    ]
    assert {each[:2] for each in wanted} == {"1-", "2-"}
    assert [each for (each,) in packed.collect()] == wanted


def test_other_formats_have_a_folder_for_each_day(spark: SparkSession, tmp_path: Path) -> None:
    destination = SparkDestination(spark=spark, format="orc", path=str(tmp_path))
    for day in ("2026-11-20", "2026-11-21"):
        destination.write(spark.range(1), DeadLetters(name="1", day=day))
    assert {path.name for path in tmp_path.glob("day=*")} == {"day=2026-11-20", "day=2026-11-21"}


@pytest.mark.long
def test_other_formats_with_a_path_are_appended_by_day(bench: Bench) -> None:
    """Like Delta, the format owns its path, so no folder is moved there."""
    kind = "org.apache.spark.sql.execution.datasources.orc.OrcFileFormat"
    bench.add(("a", 0, "bad"), ("a", 1, "x"))
    bench.start(bench.checking(check, LogAndContinue()), errors_dlq_format=kind)
    bench.wait_for_input()
    bench.add(("b", 0, "bad"))
    bench.wait_for_input()
    bench.stop()

    dead_letters = bench.spark.read.orc(str(bench.folder / "dlq")).collect()
    assert sorted((row["task"], row["position"]) for row in dead_letters) == [("a", 0), ("b", 0)]
    assert {path.name for path in (bench.folder / "dlq").glob("day=*")} == {
        f"day={row['day']}" for row in dead_letters
    }
    assert {each.format for each in bench.outbox.of(RecordsDeadLettered)} == {kind}


def in_a_table(bench: Bench) -> tuple[str, dict[str, Any]]:
    """Return the URL of a database, and the settings for dead letters there."""
    url = f"jdbc:derby:{bench.folder / 'letters'};create=true"
    return url, {
        "errors_dlq_format": "jdbc",
        "errors_dlq_path": "",
        "errors_dlq_options_url": url,
        "errors_dlq_options_dbtable": "letters",
        "errors_dlq_options_createTableColumnTypes": "task VARCHAR(512), id VARCHAR(32)",
    }


def test_dead_letters_are_written_to_a_table_by_jdbc(bench: Bench) -> None:
    url, keys = in_a_table(bench)
    bench.add(("a", 0, "bad"), ("a", 1, "x"))
    bench.start(bench.checking(check, LogAndContinue()), **keys)
    bench.wait_for_input()
    bench.stop()

    reader = bench.spark.read.format("jdbc").option("url", url).option("dbtable", "letters")
    [dead_letter] = reader.load().collect()
    assert (dead_letter["task"], dead_letter["position"]) == ("a", 0)
    [delivered] = bench.outbox.of(RecordsDeadLettered)
    assert (delivered.place, delivered.format) == ("letters", "jdbc")


def test_temporary_failures_of_a_table_are_retried(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    url, keys = in_a_table(bench)
    keys |= {"errors_retries_limit": 100, "errors_retries_delay_max_ms": 1}
    bench.add(("a", 0, "bad"))
    bench.start(bench.checking(check, LogAndContinue()), **keys)
    bench.wait_for_input()
    java: Any = bench.spark._jvm
    other = java.java.sql.DriverManager.getConnection(url)
    other.setAutoCommit(False)
    statement = other.createStatement()
    wait = "CALL SYSCS_UTIL.SYSCS_SET_DATABASE_PROPERTY('derby.locks.waitTimeout', '1')"
    statement.execute(wait)
    other.commit()
    statement.execute("LOCK TABLE letters IN SHARE MODE")

    bench.add(("a", 1, "bad"))
    message = "dead letters for letters"
    wait_until(lambda: bool(bench.ends) or any(message in each.message for each in caplog.records))
    other.commit()
    bench.wait_for_input()
    bench.stop()
    assert bench.ends == []
    reader = bench.spark.read.format("jdbc").option("url", url).option("dbtable", "letters")
    assert sorted(row["position"] for row in reader.load().collect()) == [0, 1]
    assert set(levels_of(" of dead letters to", caplog)) == {"ERROR"}
    [failed] = bench.outbox.of(DeadLettersFailed)
    assert (failed.task, failed.waiting) == ("a", 0)
    assert failed.failures >= 1
    [task] = server_state(bench.outbox.events).tasks.values()
    assert task.counters.dlq_produce_failures == failed.failures
    assert waiting(bench) == []


def test_a_failed_dead_letter_ends_the_run_and_the_next_run_writes_it(
    bench: Bench,
) -> None:
    bench.start(bench.checking(check, LogAndContinue()))
    bench.block_dead_letters()
    bench.add(("a", 0, "bad"), ("a", 1, "x"))
    wait_until(lambda: bool(bench.ends))

    [end] = bench.ends
    assert end.failure is not None and end.failure.stage == "produce"
    assert "dead letters cannot be written" in end.reason
    assert bench.written() == []  # its micro-batch was decided, and not yet written
    assert len(waiting(bench)) == 1

    bench.ends.clear()
    (bench.folder / "dlq").unlink()
    bench.start(bench.checking(check, LogAndContinue()))
    bench.wait_for_input()
    bench.stop()
    [dead_letter] = bench.dead_letters()
    assert (dead_letter["task"], dead_letter["position"]) == ("a", 0)
    assert bench.written() == [("a", 1)]
    assert waiting(bench) == []
    [failed] = bench.outbox.of(DeadLettersFailed)
    assert (failed.task, failed.failures, failed.waiting) == ("a", 1, 1)
    [task] = server_state(bench.outbox.events).tasks.values()
    assert (task.counters.dlq_records_produced, task.counters.dlq_produce_failures) == (1, 1)
    assert bench.outbox.of(ThreadDied)


def test_after_continue_a_dead_letter_stays_pending_until_the_next_one(bench: Bench) -> None:
    handler = "arrester.agents.handlers.LogAndContinue"
    bench.start(
        bench.checking(check, LogAndContinue()), default_production_exception_handler=handler
    )
    bench.block_dead_letters()
    bench.add(("a", 0, "bad"), ("a", 1, "x"))
    wait_until(lambda: bench.written() == [("a", 1)])
    assert len(waiting(bench)) == 1

    (bench.folder / "dlq").unlink()
    bench.add(("a", 2, "bad"))
    wait_until(lambda: len(bench.dead_letters()) == 2)
    # Dead letters are visible before their micro-batch is committed.
    bench.wait_for_input()
    bench.stop()
    assert sorted(each["position"] for each in bench.dead_letters()) == [0, 2]
    assert waiting(bench) == []
    assert bench.ends == []
    assert [each.waiting for each in bench.outbox.of(DeadLettersFailed)] == [1]


def test_an_unknown_format_is_reported_at_the_start(bench: Bench) -> None:
    bench.add(("a", 0, "x"))
    with pytest.raises(DeadLettersUnusable, match=r"errors\.dlq\.format='nosuchformat'"):
        bench.start(bench.checking(check), errors_dlq_format="nosuchformat")


def test_a_path_that_cannot_be_written_is_reported_at_the_start(bench: Bench) -> None:
    bench.add(("a", 0, "x"))
    (bench.folder / "file").write_text("")
    with pytest.raises(DeadLettersUnusable, match=r"errors\.dlq\.path=.*no file can be written"):
        bench.start(bench.checking(check), errors_dlq_path=str(bench.folder / "file" / "dlq"))

    bench.start(bench.checking(check))
    assert list((bench.folder / "dlq").iterdir()) == []

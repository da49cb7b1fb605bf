"""A sink function that returns before it has read all rows of its DataFrame."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.handlers import LogAndContinue
from arrester.agents.spark.sources.rows_read import RowsUnread, call_with_all_rows
from tests.agents.batch.test_job_counts import jobs_of
from tests.agents.pipeline_bench import Bench, Row, sink_to

pytestmark = pytest.mark.spark

Function = Callable[[DataFrame, str], object]


def save(df: DataFrame, folder: str) -> None:
    df.write.mode("overwrite").json(folder)


def in_two_places(df: DataFrame, folder: str) -> None:
    save(df, f"{folder}/one")
    save(df, f"{folder}/two")


def cached(df: DataFrame, folder: str) -> None:
    df.cache()
    df.count()
    save(df, folder)
    df.unpersist()


def in_a_joined_thread(df: DataFrame, folder: str) -> None:
    thread = threading.Thread(target=save, args=(df, folder))
    thread.start()
    thread.join()


def selected(df: DataFrame, folder: str) -> None:
    save(df.where("id % 2 = 0").select("id"), folder)


def looked_at_first(df: DataFrame, folder: str) -> None:
    if not df.isEmpty():
        df.show(3)
        save(df, folder)


def by_partition(df: DataFrame, folder: str) -> None:
    def send(rows: Iterator[object]) -> None:
        for _ in rows:
            pass

    df.foreachPartition(send)


READING: tuple[Function, ...] = (
    save,
    in_two_places,
    cached,
    in_a_joined_thread,
    selected,
    looked_at_first,
    by_partition,
    lambda df, folder: df.collect(),
    lambda df, folder: list(df.toLocalIterator()),
    lambda df, folder: df.orderBy("id").write.format("noop").mode("overwrite").save(),
)


def waiting_thread(df: DataFrame, folder: str) -> None:
    def wait_and_save() -> None:
        threading.Event().wait()
        save(df, folder)

    threading.Thread(target=wait_and_save, daemon=True).start()


def one_partition(df: DataFrame, folder: str) -> None:
    next(iter(df.toLocalIterator()))


def some_then_nothing(df: DataFrame, folder: str) -> None:
    df.limit(3).collect()
    df.where("id < 0")


READING_NOTHING: tuple[Function, ...] = (
    lambda df, folder: df.write,
    lambda df, folder: df.where("id > 3"),
    lambda df, folder: None,
    waiting_thread,
)
READING_A_PART: tuple[Function, ...] = (
    lambda df, folder: save(df.limit(5), folder),
    lambda df, folder: df.take(3),
    lambda df, folder: df.first(),
    one_partition,
    some_then_nothing,
    lambda df, folder: df.isEmpty(),
)


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.range(40_000, numPartitions=4).withColumn("creditLimit", F.col("id") * 2)


@pytest.mark.parametrize("function", READING)
def test_a_function_may_read_all_rows_in_any_way(
    frame: DataFrame, tmp_path: Path, function: Function
) -> None:
    call_with_all_rows(lambda df: function(df, str(tmp_path / "out")), frame)


@pytest.mark.parametrize("function", READING_NOTHING)
def test_a_function_that_reads_nothing_is_reported(
    frame: DataFrame, tmp_path: Path, function: Function
) -> None:
    with pytest.raises(RowsUnread, match="after reading 0 of 40,000 rows"):
        call_with_all_rows(lambda df: function(df, str(tmp_path / "out")), frame)


@pytest.mark.parametrize("function", READING_A_PART)
def test_a_function_that_reads_a_part_is_reported(
    frame: DataFrame, tmp_path: Path, function: Function
) -> None:
    with pytest.raises(RowsUnread, match=r"of 40,000 rows"):
        call_with_all_rows(lambda df: function(df, str(tmp_path / "out")), frame)


def test_an_empty_frame_need_not_be_read(frame: DataFrame) -> None:
    call_with_all_rows(lambda df: None, frame.where("id < 0"))


def test_a_caught_exception_of_the_evaluation_is_raised(frame: DataFrame, tmp_path: Path) -> None:
    raising = frame.where(
        F.when(F.col("id") == 30_000, F.raise_error(F.lit("a record failed"))).otherwise(True)
    )

    def catching(df: DataFrame) -> None:
        with contextlib.suppress(Exception):
            save(df, str(tmp_path / "out"))

    with pytest.raises(Exception, match="a record failed"):
        call_with_all_rows(catching, raising)


@pytest.mark.smoke
def test_a_plain_write_is_not_followed_by_a_count(frame: DataFrame, tmp_path: Path) -> None:
    folder = str(tmp_path / "out")
    save(frame, folder)
    jobs = jobs_of(frame.sparkSession, lambda: save(frame, folder))

    assert (
        jobs_of(frame.sparkSession, lambda: call_with_all_rows(lambda df: save(df, folder), frame))
        == jobs
    )


# ── in a run ─────────────────────────────────────────────────────────────────────────────────


def number(row: Row) -> Row:
    int(row["value"])
    return row


def swallowing(bench: Bench) -> Callable[[DataFrame, int], None]:
    write = sink_to(bench.folder / "out")

    def sink(df: DataFrame, batch: int) -> None:
        with contextlib.suppress(Exception):
            write(df, batch)

    return sink


@pytest.mark.smoke
@pytest.mark.parametrize("atomic", [True, False])
def test_a_sink_that_returns_early_ends_the_run(bench: Bench, atomic: bool) -> None:
    bench.add(("a", 1, "1"), ("a", 2, "2"))
    bench.start(bench.define().write(lambda df, batch: df.write, atomic=atomic))
    bench.wait_for_input()

    [end] = bench.ends
    assert isinstance(end.exception, RowsUnread)
    assert "returned after reading 0 of 2 rows" in end.reason
    assert bench.committed() == -1


@pytest.mark.parametrize("atomic", [True, False])
def test_a_sink_may_read_a_part_on_purpose(bench: Bench, atomic: bool) -> None:
    bench.add(("a", 1, "1"), ("a", 2, "2"))
    bench.start(bench.define().write(lambda df, batch: df.take(1), atomic=atomic, partial=True))
    bench.wait_for_input()

    assert not bench.ends


@pytest.mark.parametrize("native", [True, False])
def test_a_failed_record_is_found_although_the_sink_catches_its_exception(
    bench: Bench, native: bool
) -> None:
    bench.add(("a", 1, "1"), ("a", 2, "bad"), ("b", 3, "3"))
    builder = bench.define()
    if native:
        step = builder.deserialize("n", F.col("value").cast("int"), on_error=LogAndContinue())
    else:
        step = builder.process("number", number, on_error=LogAndContinue())
    bench.start(step.write(swallowing(bench), atomic=True))
    bench.wait_for_input()
    bench.stop()

    assert not bench.ends
    assert sorted(bench.written()) == [("a", 1), ("b", 3)]
    assert [row["position"] for row in bench.dead_letters()] == [2]


def _sinks(folder: Path) -> dict[str, Callable[[DataFrame, int], object]]:
    write = sink_to(folder)

    def half(df: DataFrame, batch: int) -> None:
        write(df.limit(max(1, df.count() // 2)), batch)

    def early(df: DataFrame, batch: int) -> None:
        df.write.mode("overwrite")

    def caught(df: DataFrame, batch: int) -> None:
        with contextlib.suppress(Exception):
            write(df, batch)

    def caught_half(df: DataFrame, batch: int) -> None:
        with contextlib.suppress(Exception):
            write(df.limit(2), batch)

    def twice(df: DataFrame, batch: int) -> None:
        df.count()
        write(df, batch)

    return {"early": early, "swallows": caught, "half": caught_half, "twice": twice, "all": write}


#: A sink, whether it is atomic, the kind of the step, and the values.
Form = tuple[str, bool, str, list[str]]
FORMS = st.tuples(
    st.sampled_from(["early", "swallows", "half", "twice", "all"]),
    st.booleans(),
    # Fewer of the steps that start workers of Python.
    st.sampled_from(["native", "native", "native", "python"]),
    st.lists(st.sampled_from(["1", "2", "bad"]), min_size=1, max_size=12),
)


def check_form(spark: SparkSession, folder: Path, form: Form) -> None:
    """Run one micro-batch; check that a run without an end has delivered all records."""
    name, atomic, kind, values = form
    bench = Bench(spark, folder)
    bench.add(*[("ab"[n % 2], n, value) for n, value in enumerate(values)])
    builder = bench.define()
    if kind == "native":
        step = builder.deserialize("n", F.col("value").cast("int"), on_error=LogAndContinue())
    else:
        step = builder.process("number", number, on_error=LogAndContinue())
    bench.start(step.write(_sinks(folder / "out")[name], atomic=atomic))
    bench.wait_for_input()
    bench.stop()

    if not bench.ends:
        delivered = [position for _, position in bench.written()]
        skipped = [row["position"] for row in bench.dead_letters()]
        assert sorted(delivered + skipped) == list(range(len(values)))
    else:
        assert name in ("early", "half")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    return iter(lambda: tmp_path_factory.mktemp("form"), None)


@pytest.mark.long
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(form=FORMS)
def test_no_run_ends_well_without_a_record(
    spark: SparkSession, folders: Iterator[Path], form: Form
) -> None:
    check_form(spark, next(folders), form)

"""A few failed records are aggregated in Python, many in Spark, with the same result."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.failures.aggregate import HASH, FailureSummary, skipped_coordinates
from arrester.agents.failures.failure_set import FailureSet
from arrester.agents.failures.pause_offsets import is_held, pause_offset_of
from arrester.agents.journal.entries import Cursor
from arrester.agents.spark.frames.local_checkpoint import ID
from arrester.agents.worker.columns import (
    ENTRY,
    ERROR,
    ERROR_TYPE,
    ORDINAL,
    OUTCOME,
    POSITION,
    TASK,
)

pytestmark = pytest.mark.spark

SCHEMA = T.StructType(
    [
        T.StructField(ID, T.LongType()),
        T.StructField(TASK, T.StringType()),
        T.StructField(ENTRY, T.IntegerType()),
        T.StructField(POSITION, T.LongType()),
        T.StructField(OUTCOME, T.IntegerType()),
        T.StructField(ORDINAL, T.IntegerType()),
        T.StructField(ERROR, ERROR_TYPE),
        T.StructField(HASH, T.LongType()),
    ]
)
# Characters of all planes: Spark sorts bytes of UTF-8, Python code points.
TASKS = st.sampled_from(["a", "b", "ü", "\uffee", "\U0001f600", ""])
PLACES = st.integers(-2, 6)


def error(kind: str) -> SparkRow | None:
    if kind == "native":
        return None
    names = ["ValueError", "Exception"] if kind == "value" else [kind]
    cause = {"exception_class": names[0], "frame": kind[:1], "names": names, "kind": kind[-1:]}
    others = {"condition": None, "attempts": len(kind), "message": None, "stack": None}
    values = dict.fromkeys(ERROR_TYPE.names) | cause | others
    return SparkRow(**{field.name: values[field.name] for field in ERROR_TYPE.fields})


RECORDS = st.lists(
    st.tuples(
        st.none() | TASKS,
        st.sampled_from([0, 0, 0, 7]),
        st.none() | PLACES,
        st.integers(0, 2),
        st.sampled_from(["native", "native", "value", "KeyError"]),
    ),
    min_size=1,
    max_size=40,
)


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    records=RECORDS,
    pause_offsets=st.dictionaries(
        TASKS, st.tuples(st.sampled_from([0, 7]), st.none() | PLACES), max_size=3
    ),
    in_full=st.sets(st.tuples(st.none() | TASKS, st.none() | PLACES), max_size=2),
    limit=st.integers(1, 4),
    is_ranked=st.booleans(),
)
def test_few_and_many_failed_records_are_aggregated_to_the_same_report(
    spark: SparkSession,
    records: list[tuple[str | None, int, int | None, int, str]],
    pause_offsets: dict[str, tuple[int, int | None]],
    in_full: set[tuple[str | None, int | None]],
    limit: int,
    is_ranked: bool,
) -> None:
    rows = [(n, *each[:4], 0, error(each[4]), None) for n, each in enumerate(records)]
    compact = spark.createDataFrame(rows, SCHEMA).coalesce(1)
    few = FailureSet(compact=compact, frame=compact, is_small=True)
    many = FailureSet(compact=compact, frame=compact, is_small=False)
    cursors = {
        task: Cursor(entry=entry, position=at) for task, (entry, at) in pause_offsets.items()
    }

    assert groups(few) == groups(many)
    if is_ranked:
        many = FailureSet(compact=compact, frame=compact, is_small=False)
        many.rank(limit=limit, in_full=in_full)
        assert groups(few) == groups(many)
    on_driver, in_spark = (
        each.report(limit=limit, in_full=in_full, pause_offsets=cursors) for each in (few, many)
    )
    # Of records at one place any comes first.
    assert places(few, on_driver.examples) == places(few, in_spark.examples)
    assert counts(on_driver.counted) == counts(in_spark.counted)
    assert counts(on_driver.stopped_tasks) == counts(in_spark.stopped_tasks)
    assert [each.task for each in on_driver.stopped_tasks] == [
        each.task for each in in_spark.stopped_tasks
    ]

    skipped = [
        (each.task, each.entry, position)
        for each in skipped_coordinates(few.on_driver, cursors)
        for position in each.positions
    ]
    hold = is_held(pause_offset_of(cursors))
    expected = compact.where(~hold).select(TASK, ENTRY, POSITION).collect()
    assert sorted(skipped, key=str) == sorted(map(tuple, expected), key=str)
    assert few.has_failed_at([2]) == many.has_failed_at([2])
    assert few.where(F.col(OUTCOME) == 1).on_driver == [e for e in few.on_driver if e.number == 1]


def test_thousands_of_records_are_reported_in_full(spark: SparkSession) -> None:
    """As many tasks run their held records together, and each had stopped at a record."""
    rows = [(n, f"t{n}", 0, n, 1, 0, error("value"), None) for n in range(5)]
    compact = spark.createDataFrame(rows, SCHEMA).coalesce(1)
    many = FailureSet(compact=compact, frame=compact, is_small=False)

    report = many.report(limit=1, in_full={(f"t{n}", n) for n in range(2, 3_000)})

    assert report.examples == [0, 2, 3, 4]
    assert [(each.task, each.records) for each in report.counted] == [("t1", 1)]


def groups(failures: FailureSet) -> list[str]:
    """Return each group with its count and first place; only step 1 is grouped by cause."""
    return sorted(
        str(
            (
                *(each.task, each.number, each.kind, each.number == 1 and each.cause),
                *(each.records, each.placed and each.place),
            )
        )
        for each in failures.groups([1])
    )


def places(failures: FailureSet, ids: Sequence[int]) -> list[str]:
    by_id = {
        each.id: str((each.task, each.place, each.counted_with)) for each in failures.on_driver
    }
    return sorted(by_id[each] for each in ids)


def counts(summaries: Sequence[FailureSummary]) -> list[str]:
    return sorted(
        str((each.task, each.counted_with, each.records, each.first, each.last))
        for each in summaries
    )

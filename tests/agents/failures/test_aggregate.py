"""What is asked of failed records in Python, where they are few, and in Spark is answered alike."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.executor.columns import ENTRY, ERROR, ERROR_TYPE, FATE, ORDINAL, POSITION, TASK
from arrester.agents.failures.aggregate_in_spark import CountedFailures
from arrester.agents.failures.aggregate_on_driver import skipped
from arrester.agents.failures.failure_set import Failures
from arrester.agents.failures.pause_offsets import must_hold, pause_offset_of
from arrester.agents.journal.entries import Cursor
from arrester.agents.spark.local_checkpoint import ID

pytestmark = pytest.mark.spark

SCHEMA = T.StructType(
    [
        T.StructField(ID, T.LongType()),
        T.StructField(TASK, T.StringType()),
        T.StructField(ENTRY, T.IntegerType()),
        T.StructField(POSITION, T.LongType()),
        T.StructField(FATE, T.IntegerType()),
        T.StructField(ORDINAL, T.IntegerType()),
        T.StructField(ERROR, ERROR_TYPE),
    ]
)
# Beyond the basic plane, and beside it: Spark sorts bytes of UTF-8, Python code points.
TASKS = st.sampled_from(["a", "b", "ü", "\uffee", "\U0001f600", ""])
PLACES = st.integers(-2, 6)


def error(kind: str) -> SparkRow | None:
    if kind == "native":
        return None
    names = ["ValueError", "Exception"] if kind == "value" else [kind]
    known = {"exception_class": names[0], "frame": kind[:1], "names": names, "kind": kind[-1:]}
    tried = {"condition": None, "attempts": len(kind), "message": None, "stack": None}
    told = known | tried | {"took_ms": None}
    return SparkRow(**{field.name: told[field.name] for field in ERROR_TYPE.fields})


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
    described=st.sets(st.tuples(st.none() | TASKS, st.none() | PLACES), max_size=2),
    limit=st.integers(1, 4),
)
def test_few_failed_records_are_told_of_as_many_are(
    spark: SparkSession,
    records: list[tuple[str | None, int, int | None, int, str]],
    pause_offsets: dict[str, tuple[int, int | None]],
    described: set[tuple[str | None, int | None]],
    limit: int,
) -> None:
    rows = [(n, *each[:4], 0, error(each[4])) for n, each in enumerate(records)]
    light = spark.createDataFrame(rows, SCHEMA).coalesce(1)
    few = Failures(light=light, frame=light, few=True)
    many = Failures(light=light, frame=light, few=False)
    cursors = {
        task: Cursor(entry=entry, position=at) for task, (entry, at) in pause_offsets.items()
    }

    by_few = {(g.task, g.number, g.kind, g.known and g.cause): g for g in few.groups([1])}
    by_many = {(g.task, g.number, g.kind, g.known and g.cause): g for g in many.groups([1])}
    assert by_few.keys() == by_many.keys()
    for key, group in by_few.items():
        assert (group.count, group.first) == (by_many[key].count, by_many[key].first)

    told, same = (
        each.report(limit=limit, described=described, pause_offsets=cursors, dead={"b"})
        for each in (few, many)
    )
    # Of records at one place any comes first.
    assert where(few, told.examples) == where(few, same.examples)
    assert sorted(told.rest, key=by_text) == sorted(same.rest, key=by_text)
    assert sorted(told.halted, key=str) == sorted(same.halted, key=str)
    assert [each.task for each in told.halted] == [each.task for each in same.halted]

    left_out = [
        (each.task, each.entry, position)
        for each in skipped(few.listed, cursors)
        for position in each.positions
    ]
    hold = must_hold(pause_offset_of(cursors))
    in_spark = light.where(~hold).select(TASK, ENTRY, POSITION).collect()
    assert sorted(left_out, key=str) == sorted(map(tuple, in_spark), key=str)
    assert few.has_any_of([2]) == many.has_any_of([2])
    assert few.where(F.col(FATE) == 1).listed == [e for e in few.listed if e.number == 1]


def where(few: Failures, ids: object) -> list[str]:
    by_id = {each.id: str((each.task, each.place, each.alike)) for each in few.listed}
    assert isinstance(ids, list)
    return sorted(by_id[each] for each in ids)


def by_text(rest: CountedFailures) -> str:
    return str(rest)

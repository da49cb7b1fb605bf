"""Python steps as the executors call them, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from arrester.agents.worker.columns import ERROR, ORDINAL, OUTCOME
from arrester.agents.worker.errors import Rules
from arrester.agents.worker.map_in_arrow import Aborted, FastPathSteps, GuardedSteps, Step
from arrester.agents.worker.python_steps import UserFunction
from arrester.domain.error_policy.exception_identity import describe, known_as
from arrester.domain.error_policy.retry import RetryPolicy

Row = dict[str, Any]

SCHEMA = T.StructType([T.StructField("n", T.LongType())])


def rules(*, retries: bool = True) -> Rules:
    policy = RetryPolicy(limit=3, delay_max_ms=1) if retries else RetryPolicy()
    return Rules(
        wait_after=policy.wait_after,
        describe=describe,
        known_as=known_as,
        kinds={},
        retries=retries,
    )


def steps(*functions: UserFunction, retriable: tuple[str, ...] = ()) -> list[Step]:
    return [
        Step(number=number, function=function, schema_json=SCHEMA.json(), retriable=retriable)
        for number, function in enumerate(functions, start=1)
    ]


def batch(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": pa.array(values, pa.int64())})


def guarded(steps: list[Step], *values: int, retries: bool = True) -> pa.RecordBatch:
    given = batch(*values).append_column(OUTCOME, pa.nulls(len(values), pa.int32()))
    run = GuardedSteps(steps, timezone="UTC", rules=rules(retries=retries), carried=[])
    [result] = run([given])
    return result


class Once:
    """Changes its row, and raises at its first call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, row: Row) -> Row:
        self.calls += 1
        row["n"] += 100
        if self.calls == 1:
            raise TimeoutError
        return row


@pytest.mark.parametrize("before", [0, 1], ids=["first", "later"])
def test_the_fast_path_ends_at_the_first_failed_attempt_of_a_retriable_class(before: int) -> None:
    once = Once()
    functions: list[UserFunction] = [lambda row: row] * before
    retriable = steps(*functions, once, retriable=("builtins.TimeoutError",))
    run = FastPathSteps(
        retriable, timezone="UTC", rules=rules(), abort_message="the id of the abort"
    )
    with pytest.raises(Aborted, match="the id of the abort"):
        list(run([batch(1)]))
    assert once.calls == 1


@pytest.mark.parametrize("before", [0, 1], ids=["first", "later"])
def test_a_second_attempt_on_the_slow_path_gets_the_original_row(before: int) -> None:
    once = Once()
    functions: list[UserFunction] = [lambda row: row] * before
    result = guarded(steps(*functions, once, retriable=("builtins.TimeoutError",)), 1)
    assert result.column("n").to_pylist() == [101]
    assert once.calls == 2


def one_dict() -> UserFunction:
    buffer: Row = {}

    def step(row: Row) -> Row:
        buffer.update(row)
        return buffer

    return step


def one_dict_of_a_class() -> UserFunction:
    class Mine(dict[str, Any]):
        pass

    buffer = Mine()

    def step(row: Row) -> Row:
        buffer.update(row)
        return buffer

    return step


def one_list() -> UserFunction:
    buffer: list[Row] = []

    def step(row: Row) -> list[Row]:
        buffer[:] = [row]
        return buffer

    return step


def one_dict_of_a_generator() -> UserFunction:
    buffer: Row = {}

    def step(row: Row) -> Iterator[Row]:
        for more in (0, 10):
            buffer["n"] = row["n"] + more
            yield buffer

    return step


@pytest.mark.parametrize("retries", [True, False])
@pytest.mark.parametrize("make", [one_dict, one_dict_of_a_class, one_list])
def test_a_step_may_return_the_same_object_for_every_row(make: Any, *, retries: bool) -> None:
    result = guarded(steps(make(), make()), 1, 2, 3, retries=retries)
    assert result.column("n").to_pylist() == [1, 2, 3]


def test_a_generator_may_yield_the_same_dict_repeatedly() -> None:
    result = guarded(steps(one_dict_of_a_generator()), 1, 2)
    assert result.column("n").to_pylist() == [1, 11, 2, 12]
    assert result.column(ORDINAL).to_pylist() == [0, 1, 0, 1]


def test_a_row_whose_step_returned_an_awaitable_has_failed() -> None:
    async def later(row: Row) -> Row:
        raise AssertionError("it is not awaited")

    step: Any = partial(later)  # what the types forbid
    [error] = guarded(steps(step), 1).column(ERROR).to_pylist()
    assert error["exception_class"].endswith("WrongType")
    assert "the step returned an awaitable (coroutine)" in error["message"]

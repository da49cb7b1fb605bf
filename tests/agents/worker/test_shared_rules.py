"""The executors follow the domain's rules: the same files, and the same answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from arrester.agents.spark.ship_worker_code import ship, shipped
from arrester.agents.worker.errors import RETRIABLE, SELF_HEALING, Row, Rules, now_ms
from arrester.agents.worker.python_steps import Attempted, call_with_retries
from arrester.domain.error_policy import exception_identity, retry
from arrester.domain.error_policy.classify import DEFAULT_TABLE, Kind, describe
from arrester.domain.error_policy.retry import (
    Attempts,
    RetryAfter,
    RetryPolicy,
    next_attempt,
)

TABLE = {name: ruling.kind.value for name, ruling in DEFAULT_TABLE.classifications.items()}


class Busy(ConnectionResetError):
    """A class of which only the base is in the table."""


class Rude(ValueError):
    """Raises when its condition is read."""

    def getCondition(self) -> str:
        raise RuntimeError("no")


EXCEPTIONS = [
    TimeoutError(),
    Busy(),
    PermissionError(),
    ModuleNotFoundError(),
    BufferError(),
    OSError(),
    KeyError("x"),
    SystemExit(3),
    Rude(),
    type("TaskKilledException", (Exception,), {"__module__": "org.apache.spark"})(),
]


def rules(policy: RetryPolicy) -> Rules:
    return Rules(
        wait_after=policy.wait_after,
        describe=exception_identity.describe,
        known_as=exception_identity.known_as,
        kinds=TABLE,
        retries=policy.limit != 0,
    )


def attempted(operation: Callable[[Row], list[Row]], rules: Rules) -> Attempted:
    """Make the first attempt as the steps do, then the retries."""
    row: Row = {"deep": {}}
    started_ms = now_ms()
    try:
        return Attempted(attempts=1, rows=operation(row))
    except BaseException as exc:
        raised = exc
    return call_with_retries(
        operation, lambda: {"deep": {}}, rules, raised=raised, started_ms=started_ms
    )


@pytest.mark.spark
def test_the_rules_are_shipped_as_they_are(spark: SparkSession) -> None:
    ship(spark.sparkContext)
    for module in (retry, exception_identity):
        sent = shipped(module.__name__.rpartition(".")[2])
        assert sent.__name__.startswith("_arrester_worker.")
        assert inspect.getsource(sent) == inspect.getsource(module)


@pytest.mark.parametrize("exception", EXCEPTIONS, ids=lambda each: type(each).__name__)
def test_a_class_means_the_same_on_executors(exception: BaseException) -> None:
    ruling = DEFAULT_TABLE.classify(describe(exception))

    def operation(row: Row) -> list[Row]:
        raise exception

    if ruling.kind is Kind.SELF_HEALING:
        with pytest.raises(type(exception)):
            attempted(operation, rules(RetryPolicy()))
        return
    result = attempted(operation, rules(RetryPolicy(limit=2, delay_max_ms=1)))
    assert result.failed is not None
    assert result.failed.kind == (None if ruling.kind is Kind.OTHER else ruling.kind.value)
    assert result.attempts == (3 if ruling.kind is Kind.RETRIABLE else 1)
    assert result.failed.cause.names == describe(exception).names


def test_the_kinds_on_executors_are_those_of_the_domain() -> None:
    assert (Kind.RETRIABLE.value, Kind.SELF_HEALING.value) == (RETRIABLE, SELF_HEALING)


@given(
    made=st.integers(1, 200),
    limit=st.integers(-1, 100),
    timeout_ms=st.integers(-1, 10_000),
    delay_max_ms=st.integers(1, 2**63 - 1),
    used_ms=st.integers(0, 20_000),
)
def test_executors_wait_by_the_rules_of_the_domain(
    made: int, limit: int, timeout_ms: int, delay_max_ms: int, used_ms: int
) -> None:
    policy = RetryPolicy(limit=limit, timeout_ms=timeout_ms, delay_max_ms=delay_max_ms)
    attempts = Attempts(made=made, started_ms=7, now_ms=7 + used_ms)
    decision = next_attempt(policy, attempts, chance=lambda below: below - 1)
    wait = policy.wait_after(made, started_ms=7, now_ms=7 + used_ms, chance=lambda below: below - 1)
    assert wait == (decision.wait_ms if isinstance(decision, RetryAfter) else None)


def test_each_attempt_gets_a_fresh_row() -> None:
    given: list[Row] = []

    def operation(row: Row) -> list[Row]:
        given.append(dict(row["deep"]))
        row["deep"]["changed"] = True
        raise TimeoutError

    attempted(operation, rules(RetryPolicy(limit=1, delay_max_ms=1)))
    assert given == [{}, {}]


def test_a_failure_has_the_time_since_the_first_attempt() -> None:
    def operation(row: Row) -> list[Row]:
        raise ValueError

    result = call_with_retries(
        operation, dict, rules(RetryPolicy()), raised=ValueError(), started_ms=now_ms() - 90
    )
    assert 90 <= result.took_ms < 60_000

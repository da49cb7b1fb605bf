from __future__ import annotations

import psycopg
import pytest

from arrester.domain.error_policy import failure_classes
from arrester.domain.error_policy.classify import (
    DEFAULT_TABLE,
    Kind,
    describe,
    of_row,
    unwrapped,
)
from arrester.domain.error_policy.exception_identity import CHAIN_LIMIT, Cause, linked

KAFKA = "org.apache.kafka.common.errors."


def kind(exception: BaseException) -> Kind:
    return DEFAULT_TABLE.classify(describe(exception)).kind


@pytest.mark.parametrize(
    ("exception", "expected"),
    [
        (TimeoutError(), Kind.RETRIABLE),
        (ConnectionResetError(), Kind.RETRIABLE),
        (BrokenPipeError(), Kind.RETRIABLE),
        (PermissionError(), Kind.FATAL),
        (BufferError(), Kind.FATAL),
        (ModuleNotFoundError(), Kind.FATAL),
        (ValueError(), Kind.OTHER),
        (OSError(), Kind.OTHER),
        (SystemExit(), Kind.OTHER),
    ],
)
def test_a_class_is_found_by_its_nearest_base(exception: BaseException, expected: Kind) -> None:
    assert kind(exception) is expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("INTERNAL_ERROR", Kind.FATAL),
        ("INCONSISTENT_BEHAVIOR_CROSS_VERSION.READ_ANCIENT_DATETIME", Kind.FATAL),
        ("INCONSISTENT_BEHAVIOR_CROSS_VERSION.PARSE_DATETIME_BY_NEW_PARSER", Kind.OTHER),
        ("CONCURRENT_STREAM_LOG_UPDATE", Kind.SELF_HEALING),
        ("CAST_INVALID_INPUT", Kind.OTHER),
        ("INTERNAL_ERROR_OF_ANOTHER_NAME", Kind.OTHER),
        ("40P01", Kind.RETRIABLE),
        ("08006", Kind.RETRIABLE),
        ("28P01", Kind.FATAL),
        ("23505", Kind.OTHER),
    ],
)
def test_a_condition_covers_its_sub_conditions(condition: str, expected: Kind) -> None:
    cause = Cause(names=("pyspark.errors.Any",), condition=condition)
    assert DEFAULT_TABLE.classify(cause).kind is expected


def test_sqlstates_of_no_row_are_known_and_all_others_are_of_rows() -> None:
    kinds = {
        state: DEFAULT_TABLE.classify(Cause(names=("java.sql.SQLException",), condition=state)).kind
        for state in psycopg.errors._sqlcodes
        if len(state) == len("42501")
    }
    fatal = {state for state, kind in kinds.items() if kind is Kind.FATAL}
    assert fatal == {"28000", "28P01", "3D000", "42501", "42P01", "57P04"}
    retriable = {state for state, kind in kinds.items() if kind is Kind.RETRIABLE}
    alone = {"25006", "25P03", "25P04", "55P03"}
    assert alone | {"40001", "40P01", "53300", "57014", "57P01", "57P05", "58030"} <= retriable
    assert {state[:2] for state in retriable - alone} == {"08", "40", "53", "57", "58"}
    assert {"25P02", "42703", "54000", "55000", "P0001"} <= kinds.keys() - fatal - retriable
    for state in retriable:
        error = psycopg.errors.lookup(state)("")
        assert kind(error) is Kind.RETRIABLE, state


def test_a_fatal_sqlstate_of_a_refused_row_is_its_failure_unless_it_is_configured() -> None:
    right = Cause(names=("java.sql.SQLException",), condition="42501")
    lost = Cause(names=("java.sql.SQLException",), condition="08006")
    denied = Cause(names=("java.lang.SecurityException",))
    configured = DEFAULT_TABLE.extended(Kind.FATAL, ("42501",))
    assert DEFAULT_TABLE.may_be_of_row(right)
    assert DEFAULT_TABLE.classify(of_row(right)).kind is Kind.OTHER
    assert configured.classify(of_row(right)).kind is Kind.FATAL
    assert not configured.may_be_of_row(right)
    assert DEFAULT_TABLE.classify(of_row(lost)).kind is Kind.RETRIABLE
    assert DEFAULT_TABLE.classify(of_row(denied)).kind is Kind.FATAL


def test_the_error_condition_of_pyspark_is_read_under_both_names() -> None:
    class New(Exception):
        def getCondition(self) -> str:
            return "INTERNAL_ERROR"

    class Old(Exception):
        def getErrorClass(self) -> str | None:
            return "INTERNAL_ERROR"

    class Unknown(Exception):
        def getCondition(self) -> None:
            return None

        def getErrorClass(self) -> None:
            deprecated.append(self)

    deprecated: list[Exception] = []
    assert [kind(cls()) for cls in (New, Old, Unknown)] == [Kind.FATAL, Kind.FATAL, Kind.OTHER]
    assert deprecated == []


def test_a_kafka_exception_is_classified_by_its_code() -> None:
    class KafkaError:
        def name(self) -> str:
            return "TOPIC_AUTHORIZATION_FAILED"

    assert kind(Exception(KafkaError())) is Kind.FATAL
    assert kind(Exception("no code")) is Kind.OTHER


def test_a_timeout_raised_by_send_is_a_full_buffer() -> None:
    cause = Cause(names=(KAFKA + "TimeoutException", KAFKA + "RetriableException"))
    assert DEFAULT_TABLE.classify(cause).kind is Kind.RETRIABLE
    classification = DEFAULT_TABLE.classify(cause, immediate=True)
    assert (classification.kind, classification.reason) == (Kind.FATAL, failure_classes.FULL_BUFFER)


def test_users_extend_and_overrule_the_table() -> None:
    class Busy(Exception):
        pass

    name = describe(Busy()).names[0]
    table = DEFAULT_TABLE.extended(Kind.RETRIABLE, (name, "builtins.PermissionError"))
    assert table.classify(describe(Busy())).kind is Kind.RETRIABLE
    assert table.classify(describe(PermissionError())).kind is Kind.RETRIABLE
    assert DEFAULT_TABLE.classify(describe(PermissionError())).kind is Kind.FATAL


def test_only_wrappers_are_unwrapped() -> None:
    wrapper = Cause(names=("org.apache.spark.SparkException",), condition="TASK_WRITE_FAILED")
    inner = Cause(names=("java.net.ConnectException",))
    found = unwrapped([wrapper, wrapper, inner, Cause(names=("java.lang.IllegalStateException",))])
    assert DEFAULT_TABLE.classify(found).kind is Kind.RETRIABLE
    assert (found.names[0], found.condition) == (inner.names[0], "TASK_WRITE_FAILED")
    try:
        raise ValueError from TimeoutError()
    except ValueError as error:
        assert kind(error) is Kind.OTHER


def test_a_malformed_record_is_not_fatal_by_the_exception_of_its_parser() -> None:
    spark = ("org.apache.spark.SparkException",)
    malformed = Cause(names=spark, condition="MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION")
    for cause in (
        Cause(names=spark, condition="INTERNAL_ERROR"),
        Cause(names=("java.lang.ClassCastException",)),
    ):
        assert DEFAULT_TABLE.classify(cause).kind is Kind.FATAL
        assert DEFAULT_TABLE.classify(unwrapped([malformed, cause])).kind is Kind.OTHER


def test_a_cyclic_chain_of_causes_ends() -> None:
    error = ValueError()
    error.__cause__ = KeyError()
    error.__cause__.__cause__ = error
    assert CHAIN_LIMIT > 2
    assert describe(error).names[0] == "builtins.ValueError"


def test_there_are_nine_fatal_reasons_and_no_name_has_two_kinds() -> None:
    assert len(failure_classes.FATAL) == 9
    rows = (failure_classes.FATAL, failure_classes.RETRIABLE, failure_classes.SELF_HEALING)
    names = [name for row in rows for listed in row.values() for name in listed]
    names += failure_classes.TIMEOUTS_OF_SEND
    assert len(names) == len(set(names))


def test_a_loop_of_exceptions_ends() -> None:
    """An author's `raise inner from None` inside an `except` block can make one."""
    outer, inner = ValueError("outer"), KeyError("inner")
    outer.__context__, inner.__context__ = inner, outer
    assert {type(each) for each in linked(outer)} == {ValueError, KeyError}

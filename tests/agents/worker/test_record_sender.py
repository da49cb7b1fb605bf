"""A Spark task sends the rows of `.produce`: order, futures, stops and results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from arrester.agents.worker.columns import ENTRY, ERROR, ORDINAL, POSITION, RETRIES, STOPPED, TASK
from arrester.agents.worker.errors import Rules
from arrester.agents.worker.record_sender import FULL_BUFFER, SendRecords
from arrester.domain.error_policy import exception_identity
from arrester.domain.error_policy.classify import DEFAULT_TABLE
from arrester.domain.error_policy.retry import RetryPolicy
from tests.kafka_broker import KafkaBroker

Row = dict[str, Any]
Sent = list[tuple[str | None, int]]
CONTINUE = frozenset({None, "RETRIABLE"})
RULES = Rules(
    wait_after=RetryPolicy().wait_after,
    describe=exception_identity.describe,
    known_as=exception_identity.known_as,
    kinds={name: ruling.kind.value for name, ruling in DEFAULT_TABLE.classifications.items()},
    retries=False,
)
_ERROR = pa.struct(
    [
        *((name, pa.string()) for name in ("exception_class", "message", "stack", "frame")),
        ("names", pa.list_(pa.string())),
        ("condition", pa.string()),
        ("kind", pa.string()),
        ("attempts", pa.int32()),
        ("took_ms", pa.int64()),
    ]
)


def run(send: Callable[[Row], Any] | None, *rows: tuple[str | None, int], **more: Any) -> list[Row]:
    """Send rows, in batches of two; return the results."""
    given: Row = {
        "connect": None,
        "immediate_kinds": {},
        "tolerated_kinds": frozenset(),
        "tolerated": 0,
    }
    producing = SendRecords(send=send, rules=RULES, tolerated_by_task={}, **{**given, **more})
    schema = pa.schema(
        [
            (TASK, pa.string()),
            (ENTRY, pa.int32()),
            (POSITION, pa.int64()),
            (ORDINAL, pa.int32()),
            (ERROR, _ERROR),
            ("task", pa.string()),
            ("position", pa.int64()),
        ]
    )
    dicts = [
        {TASK: task, ENTRY: 0, POSITION: n, ORDINAL: 0, "task": task, "position": n}
        for task, n in rows
    ]
    batches = [
        pa.RecordBatch.from_pylist(dicts[at : at + 2], schema=schema)
        for at in range(0, len(dicts), 2)
    ]
    return [row for batch in producing(iter(batches)) for row in batch.to_pylist()]


def failing_at(sent: Sent, *places: tuple[str | None, int]) -> Callable[[Row], None]:
    def send(row: Row) -> None:
        place = (row["task"], row["position"])
        if place in places:
            raise ValueError(f"refused {place}")
        sent.append(place)

    return send


ROWS = [(task, n) for n in range(4) for task in ("a", "b")]


def test_a_failure_stops_its_own_task_only() -> None:
    sent: Sent = []
    [reported] = run(failing_at(sent, ("a", 1)), *ROWS)
    assert sent == [("a", 0), ("b", 0), ("b", 1), ("b", 2), ("b", 3)]
    assert (reported[TASK], reported[POSITION], reported[STOPPED]) == ("a", 1, True)
    assert reported[ERROR]["exception_class"] == "ValueError"
    assert reported[ERROR]["names"][0] == "builtins.ValueError"


def test_a_possible_outage_stops_each_failing_task() -> None:
    guard: dict[str, Any] = {"tolerated_kinds": CONTINUE, "tolerated": 100}
    down = [("a", n) for n in range(4)]
    sent: Sent = []
    reported = run(failing_at(sent, *down), *ROWS, outage_from=3, **guard)
    assert [(row[POSITION], row[STOPPED]) for row in reported] == [
        (0, False),
        (1, False),
        (2, True),
    ]
    assert ("b", 3) in sent

    reported = run(failing_at([], *down), *ROWS, outage_from=5, **guard)
    assert [row[STOPPED] for row in reported] == [False] * 4


def test_a_row_whose_send_returned_an_awaitable_has_failed() -> None:
    async def later(row: Row) -> None:
        raise AssertionError("it is not awaited")

    [failed] = run(lambda row: later(row), ("a", 1))
    assert failed[ERROR]["exception_class"].endswith("WrongType")
    assert "send returned an awaitable (coroutine)" in failed[ERROR]["message"]


def test_a_tolerated_failure_does_not_stop_its_task_up_to_the_limit() -> None:
    sent: Sent = []
    failing = failing_at(sent, ("a", 0), ("a", 1), ("b", 2))
    reported = run(failing, *ROWS, tolerated_kinds=CONTINUE, tolerated=1)
    assert sent == [("b", 0), ("b", 1), ("b", 3)]
    assert [(row[TASK], row[POSITION], row[STOPPED]) for row in reported] == [
        ("a", 0, False),
        ("a", 1, True),
        ("b", 2, False),
    ]


def test_a_row_waits_for_the_future_of_its_own_task_only() -> None:
    log: list[str] = []

    class Later(Future[None]):
        def __init__(self, name: str, error: Exception | None) -> None:
            super().__init__()
            self.name, self.error = name, error

        def result(self, timeout: float | None = None) -> None:
            log.append(f"arrived {self.name}")
            if self.error is not None:
                raise self.error

    def send(row: Row) -> Future[None]:
        name = f"{row['task']}{row['position']}"
        log.append(f"sent {name}")
        return Later(name, OSError("lost") if name == "a1" else None)

    [reported] = run(send, *ROWS)
    assert log[:4] == ["sent a0", "sent b0", "arrived a0", "sent a1"]
    # Records after the lost one have not been sent; the last of the others is awaited.
    assert [line for line in log if line.startswith("sent a")] == ["sent a0", "sent a1"]
    assert log[-1] == "arrived b3"
    assert (reported[TASK], reported[POSITION], reported[STOPPED]) == ("a", 1, True)


def test_a_record_whose_batch_a_broker_refuses_for_another_one_arrives(
    kafka_broker: KafkaBroker,
) -> None:
    topic = f"keyed-{uuid4().hex[:8]}"
    kafka_broker.make(topic)
    kafka_broker.configure(topic, "cleanup.policy", "compact")
    producer = Producer({**kafka_broker.secured_client, "linger.ms": 50})
    sent: list[str] = []

    class Delivery(Future[None]):
        def result(self, timeout: float | None = None) -> None:
            producer.flush()
            super().result(timeout)

    def send(row: Row) -> Future[None]:
        future, place = Delivery(), f"{row['task']}{row['position']}"
        sent.append(place)

        def delivered(error: KafkaError | None, _: object) -> None:
            future.set_result(None) if error is None else future.set_exception(
                KafkaException(error)
            )

        key = None if place == "b1" else place.encode()
        producer.produce(topic, place.encode(), key, on_delivery=delivered)
        return future

    rows = [(task, n) for n in range(3) for task in "abcd"]
    [reported] = run(send, *rows, tolerated_kinds=CONTINUE, tolerated=1)
    assert (reported[TASK], reported[POSITION]) == ("b", 1)
    assert "INVALID_RECORD" in reported[ERROR]["message"]
    arrived = [(each.value() or b"").decode() for each in kafka_broker.messages(topic)]
    assert sorted(arrived) == sorted({f"{task}{n}" for task, n in rows} - {"b1"})
    for task in "abcd":
        assert [each for each in arrived if each[0] == task] == sorted(
            each for each in arrived if each[0] == task
        )
    # Only records of the refused batch were sent again, each once.
    assert max(map(sent.count, sent)) == 2


def test_retries_of_earlier_rounds_are_reported_with_their_record() -> None:
    sent: Sent = []
    again = {"a": 2, "b": 1}
    failed, retried = run(failing_at(sent, ("a", 0)), ("a", 0), ("b", 0), ("b", 1), attempts=again)
    assert (failed[TASK], failed[RETRIES], failed[ERROR]["attempts"]) == ("a", 2, 3)
    assert (retried[TASK], retried[RETRIES], retried[ERROR]) == ("b", 1, None)


def test_a_retriable_failure_stops_its_task_while_there_are_retries() -> None:
    def send(row: Row) -> None:
        raise TimeoutError("busy")

    rows = [("a", 0), ("a", 1)]
    assert [row[STOPPED] for row in run(send, *rows, tolerated_kinds=CONTINUE, tolerated=9)] == [
        False
    ] * 2
    [reported] = run(send, *rows, tolerated_kinds=CONTINUE, tolerated=9, retries=True)
    assert (reported[STOPPED], reported[ERROR]["kind"]) == (True, "RETRIABLE")


def test_a_timeout_of_send_itself_is_a_full_buffer() -> None:
    kinds = {"builtins.TimeoutError": "FATAL"}

    def raises(row: Row) -> None:
        raise TimeoutError("no room")

    def later(row: Row) -> Future[None]:
        answer: Future[None] = Future()
        answer.set_exception(TimeoutError("late"))
        return answer

    [at_once] = run(raises, ("a", 0), immediate_kinds=kinds)
    assert (at_once[ERROR]["kind"], at_once[ERROR]["names"][0]) == ("FATAL", FULL_BUFFER)
    assert FULL_BUFFER in DEFAULT_TABLE.classifications
    [afterwards] = run(later, ("a", 0), immediate_kinds=kinds)
    assert afterwards[ERROR]["kind"] == "RETRIABLE"


def test_a_client_is_opened_once_and_only_for_partitions_with_rows() -> None:
    log: list[str] = []

    @contextmanager
    def connect() -> Iterator[Callable[[Row], None]]:
        log.append("open")
        yield lambda row: log.append(f"{row['task']}{row['position']}")
        log.append("close")

    assert run(None, connect=connect) == []
    assert run(None, ("a", 0), (None, 1), ("a", 2), connect=connect) == []
    assert log == ["open", "a0", "None1", "a2", "close"]

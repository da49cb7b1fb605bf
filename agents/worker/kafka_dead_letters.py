"""Send dead letters to a Kafka topic. Refused dead letters are reported, never raised.

The only module here that needs `confluent-kafka`, and only when it is called.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from .errors import RETRIABLE, SELF_HEALING, Failed, Rules, failure_from, now_ms, sleep, text
from .redactor import RedactRow

DeadLetter = dict[str, Any]
Header = tuple[str, "bytes | None"]

#: The result of a Spark partition, a row for each task.
RESULT = (
    "task string, failures bigint, waiting bigint, exception_class string, message string, "
    "names array<string>, kind string, attempts int, ids array<string>"
)
#: Up to this many ids of waiting dead letters are reported per task; with more, all of the task's
#: are reported as waiting.
IDS = 10_000
#: The broker or the client refuses a message of this size.
_TOO_LARGE = "confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE"
#: Our headers are cut to this many bytes if a dead letter is too large with them.
_HEADER_BYTES = 1_024
_CUT_MARK = "…[cut]".encode()
#: Kafka Connect's names of the stages, which its readers know.
_CONNECT_STAGES = {
    "source": "TASK_POLL",
    "deserialize": "VALUE_CONVERTER",
    "process": "TRANSFORMATION",
    "produce": "TASK_PUT",
}
_CONNECT, _STREAMS, _OURS = "__connect.errors.", "__streams.errors.", "__arrester."
#: In place of 0, which the client takes for "now": the closest time that can be sent.
_FIRST_MS = 1
_FULL_QUEUE_SECONDS = 0.1
_REQUEST_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class DeadLetterSender:
    """The function for `mapInArrow`: sends dead letters and reports the refused ones."""

    topic: str
    #: Of `confluent_kafka.Producer`.
    configuration: Mapping[str, Any]
    rules: Rules
    #: Whether the headers of Kafka Connect and Kafka Streams are written.
    context_headers: bool
    #: Whether the source row is a header too.
    include_messages: bool
    #: Makes the value from the source row: an object with `convert(row)`, or a function of the row.
    converter: Any = None
    #: Removes the values of a row's dropped fields from the text of its failure.
    redacting: RedactRow | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the failures by task; nothing if all were accepted at once."""
        from confluent_kafka import Producer

        producer = Producer(dict(self.configuration))
        tallies: dict[str | None, _Tally] = {}
        for batch in batches:
            self._deliver(producer, batch.to_pylist(), tallies)
        if tallies:
            yield _report(tallies, self.redacting)

    def _deliver(
        self, producer: Any, dead_letters: Sequence[DeadLetter], tallies: dict[str | None, _Tally]
    ) -> None:
        started_ms, attempts, remaining = now_ms(), 0, list(dead_letters)
        while remaining:
            attempts += 1
            refused = self._attempt(producer, remaining)
            refused = self._retry_without_large_headers(producer, refused, tallies, attempts)
            retriable = [dead_letter for dead_letter, failed in refused if failed.kind == RETRIABLE]
            wait_ms = self.rules.wait_after(
                attempts, started_ms=started_ms, now_ms=now_ms(), chance=random.randrange
            )
            for dead_letter, failed in refused:
                tally = tallies.setdefault(dead_letter["task"], _Tally())
                final = wait_ms is None or failed.kind != RETRIABLE
                tally.count(failed, attempts, dead_letter, waits=final)
            if wait_ms is None or not retriable:
                return
            sleep(wait_ms)
            remaining = retriable

    def _retry_without_large_headers(
        self,
        producer: Any,
        refused: list[tuple[DeadLetter, Failed]],
        tallies: dict[str | None, _Tally],
        attempts: int,
    ) -> list[tuple[DeadLetter, Failed]]:
        """Send dead letters that were too large again, with our headers cut; return those still
        refused."""
        others: list[tuple[DeadLetter, Failed]] = []
        large: list[DeadLetter] = []
        for dead_letter, failed in refused:
            if failed.cause.names[0] == _TOO_LARGE and self._has_large_headers(dead_letter):
                dead_letter["cut"] = True
                tallies.setdefault(dead_letter["task"], _Tally()).count(
                    failed, attempts, dead_letter, waits=False
                )
                large.append(dead_letter)
            else:
                others.append((dead_letter, failed))
        return [*others, *self._attempt(producer, large)] if large else refused

    def _has_large_headers(self, dead_letter: DeadLetter) -> bool:
        added = self._added_headers(dead_letter)
        return not dead_letter.get("cut") and any(
            len(_bytes(v) or b"") > _HEADER_BYTES for _, v in added
        )

    def _attempt(
        self, producer: Any, dead_letters: Sequence[DeadLetter]
    ) -> list[tuple[DeadLetter, Failed]]:
        """Send all of them and wait for the broker; return those that it refused."""
        from confluent_kafka import KafkaException

        refused: list[tuple[DeadLetter, Failed]] = []

        def refuse(dead_letter: DeadLetter, exc: BaseException) -> None:
            failed = failure_from(exc, self.rules)
            if failed.kind == SELF_HEALING:
                raise exc
            refused.append((dead_letter, failed))

        def delivered(dead_letter: DeadLetter, error: Any, message: Any) -> None:
            if error is not None:
                refuse(dead_letter, KafkaException(error))

        for dead_letter in dead_letters:
            try:
                self._send(producer, dead_letter, partial(delivered, dead_letter))
            except Exception as exc:
                refuse(dead_letter, exc)
        # Bounded by message.timeout.ms: each dead letter is accepted, refused or given up.
        producer.flush()
        return refused

    def _send(
        self, producer: Any, dead_letter: DeadLetter, on_delivery: Callable[..., None]
    ) -> None:
        message: dict[str, Any] = {
            "key": dead_letter["key"],
            "value": self._value(dead_letter),
            "headers": self._headers(dead_letter),
            "on_delivery": on_delivery,
        }
        if dead_letter["timestamp"] is not None:
            message["timestamp"] = dead_letter["timestamp"] or _FIRST_MS
        while True:
            try:
                producer.produce(self.topic, **message)
            except BufferError:  # its own queue is full: the broker is slower than we are
                producer.poll(_FULL_QUEUE_SECONDS)
            else:
                producer.poll(0)
                return

    def _value(self, dead_letter: DeadLetter) -> bytes | None:
        """Return the original bytes; a row without them is converted, JSON by default."""
        row: bytes = dead_letter["row"]
        if self.converter is not None:
            convert: Callable[[DeadLetter], Any] = getattr(
                self.converter, "convert", self.converter
            )
            converted = convert(json.loads(row))
            return converted.encode() if isinstance(converted, str) else converted
        value: bytes | None = dead_letter["value"]
        return value if dead_letter["has_value"] else row

    def _headers(self, dead_letter: DeadLetter) -> list[Header]:
        """Return the record's own headers, then ours: a reader takes the last one."""
        original = [(each["key"] or "", each["value"]) for each in dead_letter["headers"] or ()]
        added = [(name, _bytes(value)) for name, value in self._added_headers(dead_letter)]
        if dead_letter.get("cut"):
            added = [(name, _shortened(value)) for name, value in added]
            added.append((f"{_OURS}cut", b"true"))
        return [*original, *added]

    def _added_headers(self, dead_letter: DeadLetter) -> list[tuple[str, object]]:
        added: list[tuple[str, object]] = [(f"{_OURS}record.id", dead_letter["id"])]
        if self.context_headers:
            added = [*_connect_headers(dead_letter), *_streams_headers(dead_letter), *added]
            added += [
                (f"{_OURS}{name}", dead_letter[name])
                for name in ("application", "task", "position", "stage", "condition", "reason")
            ]
        if dead_letter["configs"] is not None:
            added.append((f"{_OURS}configs", dead_letter["configs"]))
        if self.include_messages:
            added.append((f"{_OURS}row", dead_letter["row"]))
        return added


def _connect_headers(dead_letter: DeadLetter) -> list[tuple[str, object]]:
    stage = dead_letter["stage"] or "process"
    headers = {
        "topic": dead_letter["topic"],
        "partition": dead_letter["partition"],
        "offset": dead_letter["offset"],
        "connector.name": dead_letter["pipeline"],
        "task.id": dead_letter["task"],
        "stage": _CONNECT_STAGES.get(stage.partition(":")[0], stage),
        "class.name": dead_letter["executing_class"],
        "exception.class.name": dead_letter["exception_class"],
        "exception.message": dead_letter["message"] or None,
        "exception.stacktrace": _trace(dead_letter),
    }
    return [(f"{_CONNECT}{name}", value) for name, value in headers.items()]


def _streams_headers(dead_letter: DeadLetter) -> list[tuple[str, object]]:
    headers = {
        "exception": dead_letter["exception_class"],
        "message": dead_letter["message"] or None,
        "stacktrace": _trace(dead_letter),
        "topic": dead_letter["topic"],
        "partition": dead_letter["partition"],
        "offset": dead_letter["offset"],
    }
    return [(f"{_STREAMS}{name}", value) for name, value in headers.items()]


def _trace(dead_letter: DeadLetter) -> str:
    """Return the trace, preceded by class and message as in Java."""
    stack: str = dead_letter["stack"] or ""
    name = dead_letter["exception_class"] or ""
    if name and stack.startswith(name):
        return stack
    message = dead_letter["message"]
    return f"{name}{f': {message}' if message else ''}\n{stack}".rstrip("\n")


def _bytes(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode(errors="replace")


def _shortened(value: bytes | None) -> bytes | None:
    if value is None or len(value) <= _HEADER_BYTES:
        return value
    return value[:_HEADER_BYTES].decode(errors="ignore").encode() + _CUT_MARK


@dataclass
class _Tally:
    """The failures of one task's dead letters."""

    failures: int = 0
    waiting: int = 0
    attempts: int = 0
    last: Failed | None = field(default=None)
    #: The dead letter that it belongs to.
    dead_letter: DeadLetter = field(default_factory=dict)
    weight: int = 0
    ids: list[str] = field(default_factory=list)

    def count(self, failed: Failed, attempts: int, dead_letter: DeadLetter, *, waits: bool) -> None:
        """Count a failed attempt; the dead letter `waits` if there is no further one."""
        self.failures += 1
        self.attempts = max(self.attempts, attempts)
        if waits:
            self.waiting += 1
            if len(self.ids) < IDS:
                self.ids.append(dead_letter["id"])
        # A failure that may pass by itself is more informative than one of a single dead letter.
        weight = 1 + (failed.kind is not None) if waits else 0
        if weight >= self.weight:
            self.last, self.dead_letter, self.weight = failed, dead_letter, weight

    def message(self, redacting: RedactRow | None) -> str:
        """Return the text of the failure, without redacted values."""
        message = "" if self.last is None else text(self.last.error)
        if redacting is None:
            return message
        try:
            row: bytes = self.dead_letter["row"]
            return redacting(row.decode(), message, None)[1] or ""
        except Exception:  # a row that is no text: its values in the message are unknown
            return "(not shown: the row cannot be read)"


def _report(tallies: Mapping[str | None, _Tally], redacting: RedactRow | None) -> pa.RecordBatch:
    rows = [
        {
            "task": task,
            "failures": tally.failures,
            "waiting": tally.waiting,
            "exception_class": tally.last.cause.names[0],
            "message": tally.message(redacting),
            "names": list(tally.last.cause.names),
            "kind": tally.last.kind,
            "attempts": tally.attempts,
            "ids": tally.ids if tally.waiting <= IDS else None,
        }
        for task, tally in tallies.items()
        if tally.last is not None
    ]
    schema = pa.schema(
        [
            ("task", pa.string()),
            ("failures", pa.int64()),
            ("waiting", pa.int64()),
            ("exception_class", pa.string()),
            ("message", pa.string()),
            ("names", pa.list_(pa.string())),
            ("kind", pa.string()),
            ("attempts", pa.int32()),
            ("ids", pa.list_(pa.string())),
        ]
    )
    return pa.RecordBatch.from_pylist(rows, schema=schema)


# At the start of a run


def has_client(_: int) -> bool:
    """Whether `confluent-kafka` is installed here; called for each element of a probe."""
    return find_spec("confluent_kafka") is not None


@dataclass(frozen=True, kw_only=True)
class TopicMaker:
    """Create a topic if it is missing."""

    configuration: Mapping[str, Any]
    name: str
    partitions: int
    replication_factor: int

    def __call__(self, _: int) -> tuple[bool, str | None]:
        """Return whether the topic was missing, and the error."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            return self.make(AdminClient(dict(self.configuration))), None
        except KafkaException as exc:
            return False, text(exc)

    def make(self, admin: Any) -> bool:
        """Return whether the topic was missing; raises the broker's error."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.cimpl import NewTopic

        # All of them: to request one by name creates it on a broker that auto-creates topics.
        if self.name in admin.list_topics(timeout=_REQUEST_SECONDS).topics:
            return False
        wanted = NewTopic(self.name, self.partitions, self.replication_factor)
        futures = admin.create_topics([wanted], request_timeout=_REQUEST_SECONDS)
        try:
            futures[self.name].result()
        except KafkaException as exc:
            # Another run was faster.
            if exc.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        return True

"""Send dead letters to a Kafka topic. Refused dead letters are reported, never raised.

`confluent-kafka` is imported only in the functions that need it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from .errors import RETRIABLE, SELF_HEALING, Failed, Rules, failure_from, now_ms, sleep, text
from .kafka_headers import DeadLetter, has_large_headers, message_headers
from .kafka_refusals import may_be_of_another, reason
from .redactor import RedactRow

#: The columns of the result, which has a row for each task with refused dead letters.
RESULT = (
    "task string, failures bigint, waiting bigint, exception_class string, message string, "
    "names array<string>, kind string, attempts int, ids array<string>"
)
#: Up to this many IDs of waiting dead letters are reported per task. If there are more, all dead
#: letters of the task are reported as waiting.
IDS = 10_000
#: The refusal of a message for its size, by the broker or the client.
_TOO_LARGE = "confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE"
#: The time that is sent in place of 0, which the client takes for "now".
_FIRST_MS = 1
_FULL_QUEUE_SECONDS = 0.1
#: As `VALUE_IS_ROW` in the domain's `dead_letter_messages`.
_VALUE_IS_ROW = '"value"'


@dataclass(frozen=True, kw_only=True)
class DeadLetterSender:
    """The function for `mapInArrow`: sends dead letters and reports the refused ones."""

    topic: str
    #: The configuration of `confluent_kafka.Producer`.
    configuration: Mapping[str, Any]
    rules: Rules
    #: Whether the headers of Kafka Connect and Kafka Streams are written.
    context_headers: bool
    #: Whether the source row is a header too.
    include_messages: bool
    #: Makes the value from the source row: an object with `convert(row)`, or a function of the row.
    converter: Any = None
    #: Removes the values of a row's redacted fields from the text of its failure.
    redacting: RedactRow | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the failures by task; nothing if all dead letters were accepted at once."""
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
        for each in remaining:
            each["source"] = self._source(each)
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
        """Send dead letters that were too large again, with our headers cut.

        Returns those that are still refused.
        """
        others: list[tuple[DeadLetter, Failed]] = []
        large: list[DeadLetter] = []
        for dead_letter, failed in refused:
            if failed.cause.names[0] == _TOO_LARGE and has_large_headers(
                dead_letter, context=self.context_headers, row=self.include_messages
            ):
                dead_letter["cut"] = True
                tallies.setdefault(dead_letter["task"], _Tally()).count(
                    failed, attempts, dead_letter, waits=False
                )
                large.append(dead_letter)
            else:
                others.append((dead_letter, failed))
        return [*others, *self._attempt(producer, large)] if large else refused

    def _attempt(
        self, producer: Any, dead_letters: Sequence[DeadLetter]
    ) -> list[tuple[DeadLetter, Failed]]:
        """Send all of them and wait for the broker; return those that it refused.

        A broker refuses a batch as a whole: its dead letters are sent again in halves, so that only
        those are refused that are refused alone.
        """
        refused = self._send_together(producer, dead_letters)
        if len(dead_letters) == 1:
            return refused
        again = [each for each, failed in refused if may_be_of_another(failed)]
        refused = [each for each in refused if not may_be_of_another(each[1])]
        middle = len(again) // 2
        for half in filter(None, (again[:middle], again[middle:])):
            refused += self._attempt(producer, half)
        return refused

    def _send_together(
        self, producer: Any, dead_letters: Sequence[DeadLetter]
    ) -> list[tuple[DeadLetter, Failed]]:
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
            "headers": message_headers(
                dead_letter, context=self.context_headers, row=self.include_messages
            ),
            "on_delivery": on_delivery,
        }
        if dead_letter["timestamp"] is not None:
            message["timestamp"] = dead_letter["timestamp"] or _FIRST_MS
        while True:
            try:
                producer.produce(self.topic, **message)
            except BufferError:  # the client's queue is full: the broker is slower
                producer.poll(_FULL_QUEUE_SECONDS)
            else:
                producer.poll(0)
                return

    def _source(self, dead_letter: DeadLetter) -> str | None:
        """Return the header by which a reader finds the source row in the message.

        None: a converter made the value, or the record has columns that the message has not.
        """
        if self.converter is not None:
            return None
        # Absent in dead letters that an earlier version has stored.
        source: str | None = dead_letter.get("source")
        return source if dead_letter["has_value"] else _VALUE_IS_ROW

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


@dataclass
class _Tally:
    """The failures of one task's dead letters."""

    failures: int = 0
    waiting: int = 0
    attempts: int = 0
    last: Failed | None = None
    #: The dead letter of the last failure.
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
        # Final failures are preferred, and of these the ones with a kind: they may pass by
        # themselves.
        weight = 1 + (failed.kind is not None) if waits else 0
        if weight >= self.weight:
            self.last, self.dead_letter, self.weight = failed, dead_letter, weight

    def message(self, redacting: RedactRow | None) -> str:
        """Return the text of the failure, without redacted values."""
        if self.last is None:
            return ""
        message, explained = text(self.last.error), reason(self.last)
        if redacting is not None:
            try:
                row: bytes = self.dead_letter["row"]
                message = redacting(row.decode(), message, None)[1] or ""
            except Exception:  # the row is not text, so its values in the message are unknown
                message = "(not shown: the row cannot be read)"
        return f"{message}: {explained}" if explained else message


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

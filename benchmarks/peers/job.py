"""One run of a tool: JSON records of a topic, some of them malformed, into files or a topic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin._listoffsets import OffsetSpec

from arrester.examples import flights_data
from tests.kafka_broker import KafkaBroker

PARTITIONS = 2
#: The fields of a record, with types that Spark and Flink both know.
FIELDS = {
    "year": "INT",
    "month": "INT",
    "day": "INT",
    "origin": "STRING",
    "flight": "STRING",
    "line": "STRING",
    "position": "BIGINT",
}
_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A topic of which every n-th record is malformed; 0: none."""

    records: int
    malformed_every: int = 0

    @property
    def topic(self) -> str:
        """Its name."""
        return f"records-{self.records}-{self.malformed_every}"

    @property
    def malformed(self) -> int:
        """The number of malformed records."""
        return sum(map(self._is_malformed, range(self.records)))

    def _is_malformed(self, position: int) -> bool:
        """Whether it is: one record of each block, in another partition than that of the last."""
        if not self.malformed_every:
            return False
        block, place = divmod(position, self.malformed_every)
        return place == block % PARTITIONS

    def send(self, broker: KafkaBroker) -> None:
        """Create the topic, and fill it."""
        broker.make(self.topic, PARTITIONS)
        options = {"linger.ms": 50, "queue.buffering.max.messages": 1_000_000}
        producer = Producer({"bootstrap.servers": broker.servers, "acks": "all", **options})
        for position, text in enumerate(self._texts()):
            producer.produce(self.topic, text, partition=position % PARTITIONS)
            if position % 10_000 == 0:
                producer.flush()
        producer.flush()
        if (sent := count_messages(broker, self.topic)) != self.records:
            raise RuntimeError(f"topic {self.topic} has {sent} records instead of {self.records}")

    def _texts(self) -> Iterator[bytes]:
        rows = cycle([_without_position(row) for row in flights_data.rows()])
        for position, row in enumerate(islice(rows, self.records)):
            end = "" if self._is_malformed(position) else "}"
            yield f'{row[:-1]}, "position": {position}{end}'.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run, and its places for the output."""

    broker: KafkaBroker
    input: Input
    #: For its files; is empty.
    folder: Path
    #: Unique for each run.
    name: str

    @property
    def files(self) -> Path:
        """The folder for output as files."""
        return self.folder / "output"

    @property
    def output(self) -> str:
        """The topic for output as messages."""
        return f"{self.name}-output"

    @property
    def dead_letters(self) -> str:
        """The topic for dead letters."""
        return f"{self.name}-dead-letters"

    def make_topics(self) -> None:
        """Create the topics for output."""
        for topic in (self.output, self.dead_letters):
            self.broker.make(topic, PARTITIONS)

    def delete_topics(self) -> None:
        """Delete them."""
        for topic in (self.output, self.dead_letters):
            self.broker.delete(topic)

    def write(self, name: str, text: str) -> Path:
        """Write a file of settings, and return its path."""
        path = self.folder / name
        path.write_text(text)
        return path


def count_messages(broker: KafkaBroker, topic: str) -> int:
    """Return the number of messages in a topic from which nothing was deleted."""
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    places = {TopicPartition(topic, each): latest for each in range(PARTITIONS)}
    found = broker.admin.list_offsets(places, request_timeout=_SECONDS)
    return sum(future.result().offset for future in found.values())


def count_bytes(folder: Path) -> int:
    """Return the size of the files of a folder; 0 if there is none."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def count_lines(folder: Path) -> int:
    """Return the number of lines in the files of a folder, without hidden ones."""
    count = 0
    for path in folder.rglob("*"):
        is_hidden = any(part[0] in "._" for part in path.relative_to(folder).parts)
        if path.is_file() and not is_hidden:
            with path.open("rb") as file:
                while some := file.read(1 << 20):
                    count += some.count(b"\n")
    return count


def _without_position(row: dict[str, object]) -> str:
    line = str(row["value"])
    year, month, day = line.split(",")[:3]
    return json.dumps(
        {
            "year": int(year),
            "month": int(month),
            "day": int(day),
            "origin": row["origin"],
            "flight": row["flight"],
            "line": line,
        }
    )

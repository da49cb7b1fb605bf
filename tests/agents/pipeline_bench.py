"""A pipeline over JSON files: one file is one micro-batch; the sink is idempotent by number."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from arrester.agents.config import AgentConfig
from arrester.agents.definition.builder import PipelineBuilder, define
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import Handler, LogAndPause
from arrester.agents.run.thread import PipelineThread
from arrester.agents.runtime.thread_protocol import ThreadEnd
from arrester.agents.transport.flow_store import FlowStore
from arrester.domain.events import Event, StoredEvent
from arrester.domain.python_versions import UTC
from arrester.domain.state.states import ThreadStatus
from arrester.domain.state.stream_state import StreamState, empty
from tests.patience import PATIENCE_SECONDS, wait_until

Row = dict[str, Any]
T = TypeVar("T")
APPLICATION = "tests"
SCHEMA = "task STRING, position BIGINT, value STRING"


class MemoryOutbox:
    """An outbox in memory; with `confirming`, everything is confirmed."""

    def __init__(self, *, confirming: bool = False) -> None:
        self.batches: dict[UUID, list[Event]] = {}
        self.confirming = confirming
        #: Of a spool, if a test measures the flow.
        self.flow: FlowStore | None = None

    def put(self, batch_id: UUID, events: Sequence[Event]) -> None:
        self.batches.setdefault(batch_id, list(events))

    def is_confirmed(self, batch_id: UUID) -> bool:
        return self.confirming and batch_id in self.batches

    def is_stored(self, batch_id: UUID) -> bool:
        return self.confirming and batch_id in self.batches

    @property
    def events(self) -> list[Event]:
        return [event for events in self.batches.values() for event in events]

    def of(self, kind: type[T]) -> list[T]:
        return [event.data for event in self.events if isinstance(event.data, kind)]


def server_state(events: Iterable[Event]) -> StreamState:
    """Return the state that the server folds from the events."""
    stored = [
        StoredEvent(
            application=APPLICATION,
            sequence=sequence,
            received_at=event.occurred_at,
            batch=uuid4(),
            event=event,
        )
        for sequence, event in enumerate(events, start=1)
    ]
    return empty(APPLICATION).fold(stored)


def write_batch(folder: Path, number: int, rows: Sequence[Row]) -> None:
    """Add one file atomically, newer than its predecessor."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{number:06d}.json"
    draft.write_text("".join(json.dumps(row) + "\n" for row in rows))
    # Spark reads files by time, and two of one millisecond in any order.
    os.utime(draft, (1_700_000_000 + number, 1_700_000_000 + number))
    draft.rename(folder / f"{number:06d}.json")


def read_sink(folder: Path) -> list[tuple[int, Row]]:
    """Return the rows of the sink as (number, row), ordered by number and file."""
    found = []
    for each in sorted(folder.glob("[0-9]*")):
        for part in sorted(each.glob("part-*.json")):
            found += [(int(each.name), json.loads(line)) for line in part.read_text().splitlines()]
    return found


def parquet_rows(file: Path) -> list[Row]:
    """Return the rows of a file of Spark's as Spark collects them."""
    table = pq.ParquetFile(file, coerce_int96_timestamp_unit="us").read()
    texts = [field.name for field in table.schema if pa.types.is_string(field.type)]
    for name in texts:
        # It may be no UTF-8.
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table[name].cast(pa.binary()))
    return [
        {name: _collected(value, is_text=name in texts) for name, value in row.items()}
        for row in table.to_pylist()
    ]


def _collected(value: Any, *, is_text: bool) -> Any:
    if isinstance(value, datetime):
        in_utc = value if value.tzinfo else value.replace(tzinfo=UTC)
        return in_utc.astimezone().replace(tzinfo=None)
    return value.decode(errors="replace") if is_text and value is not None else value


def sink_to(folder: Path) -> Callable[[DataFrame, int], None]:
    """Return a sink that is idempotent by number."""
    place = str(folder)

    def sink(df: DataFrame, number: int) -> None:
        df.write.mode("overwrite").json(f"{place}/{number:08d}")

    return sink


def levels_of(text: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log level of each line that contains this text."""
    return [each.levelname for each in caplog.records if text in each.getMessage()]


def blocks(spark: SparkSession) -> set[int]:
    """Return the local checkpoints whose blocks are not released."""
    context: Any = spark.sparkContext
    return set(context._jsc.getPersistentRDDs())


class Bench:
    """Folders, a source, a sink and threads of one test."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.checkpoint = str(folder / "checkpoint")
        self.outbox = MemoryOutbox()
        self.ends: list[ThreadEnd] = []
        self.threads: list[PipelineThread] = []
        self._files = 0

    def config(self, **keys: object) -> AgentConfig:
        errors: dict[str, object] = {"errors.dlq.enable": True}
        # Dead letters have one place.
        if "errors_dlq_topic_name" not in keys:
            errors["errors.dlq.path"] = str(self.folder / "dlq")
        return AgentConfig.read(
            APPLICATION,
            errors | {name.replace("_", "."): value for name, value in keys.items()},
            environment={
                "ARRESTER_SPOOL": str(self.folder / "spool"),
                # Without a server, nothing is measured.
                **({} if self.outbox.flow is None else {"REDIS_URL": "redis://unused"}),
            },
        )

    def add(self, *rows: tuple[str | None, int | None, str]) -> None:
        self._files += 1
        named = [dict(zip(("task", "position", "value"), row, strict=True)) for row in rows]
        write_batch(self.folder / "in", self._files, named)

    def source(self) -> DataFrame:
        (self.folder / "in").mkdir(exist_ok=True)
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder / "in"))

    def define(self, **more: Any) -> PipelineBuilder:
        return self.define_over(self.source(), **more)

    def define_over(self, source: DataFrame, **more: Any) -> PipelineBuilder:
        columns: dict[str, Any] = {"task": "task", "position": "position", "value": "value"} | more
        return define("lines", source, **columns)

    def checking(
        self, fn: Callable[[Row], Any], handler: Handler | None = None, **more: Any
    ) -> Pipeline:
        """Return the usual pipeline: one Python step, with LogAndPause by default."""
        builder = self.define(**more).process("check", fn, on_error=handler or LogAndPause())
        return builder.write(sink_to(self.folder / "out"))

    def thread(
        self, pipeline: Pipeline, *, instance: UUID | None = None, **keys: Any
    ) -> PipelineThread:
        thread = PipelineThread(
            pipeline,
            application=APPLICATION,
            instance=instance or uuid4(),
            outbox=self.outbox,
            config=self.config(**keys),
            on_end=self.ends.append,
        )
        self.threads.append(thread)
        return thread

    def start(
        self, pipeline: Pipeline, *, instance: UUID | None = None, **keys: Any
    ) -> PipelineThread:
        thread = self.thread(pipeline, instance=instance, **keys)
        thread.start(self.checkpoint)
        return thread

    def uncommit(self, batch: int) -> None:
        """Let Spark repeat a micro-batch, as after a kill between the sink and Spark's commit."""
        commit = Path(self.checkpoint) / "commits" / str(batch)
        commit.unlink()
        commit.with_name(f".{batch}.crc").unlink(missing_ok=True)

    def make_older(self) -> None:
        """Make the checkpoint an older copy: micro-batches from 2 on and the journal are lost."""
        for folder in ("commits", "offsets"):
            for file in (Path(self.checkpoint) / folder).glob("[2-9]*"):
                file.unlink()
        shutil.rmtree(Path(self.checkpoint) / "arrester" / "journal")

    def committed(self) -> int:
        folder = Path(self.checkpoint) / "commits"
        numbers = [int(each.name) for each in folder.glob("[0-9]*")] if folder.exists() else []
        return max(numbers, default=-1)

    def wait_for_input(self) -> None:
        """Wait until every file that was added is a committed micro-batch."""
        wait_until(lambda: self.committed() >= self._files - 1 or bool(self.ends), what="commits")

    def written(self) -> list[tuple[str, int]]:
        """Return task and position of the rows in the sink, in the order of its numbers."""
        rows = [row for _, row in read_sink(self.folder / "out")]
        return [(row["task"], row["position"]) for row in rows]

    def positions(self, task: str) -> list[int]:
        return [position for name, position in self.written() if name == task]

    def dead_letters(self) -> list[Row]:
        """Return the dead letters in complete folders, without a job of Spark."""
        marks = sorted((self.folder / "dlq").glob("day=*/*/_SUCCESS"))
        return [
            row | {"day": date.fromisoformat(mark.parent.parent.name.partition("=")[2])}
            for mark in marks
            for part in sorted(mark.parent.glob("part-*"))
            for row in parquet_rows(part)
        ]

    def block_dead_letters(self) -> None:
        """Make the folder of dead letters unusable, after the start has checked it."""
        (self.folder / "dlq").rmdir()
        (self.folder / "dlq").write_text("a file, where a folder is to be")

    def stop(self) -> None:
        for thread in self.threads:
            if thread.state is ThreadStatus.RUNNING:
                assert thread.stop("stopped", timeout_seconds=PATIENCE_SECONDS)

    def close(self) -> None:
        self.stop()

"""A driver process of its own, to be killed.

    python -m tests.agents.killable_driver FOLDER [POINT] [END]

END is `produce`, `atomic`, `files`, `jdbc`, `iceberg`, `delta`, or empty: a sink that is not
atomic. The process ends by itself when the file `stop` appears, and kills itself with SIGKILL at
POINT: `before-entry:KIND` or `after-entry:KIND` of the journal, `after-sink:NUMBER`,
`after-count:BATCH` or `before-settle:BATCH` of the flow, or `after-abort`: then the sink is all or
nothing. With `files`, it is `before-publication` or `after-publication` of staged ones in
FOLDER/files. With `jdbc`, it is `before-commit` or `after-commit` of a write into the table `lines`
of JDBC_URL, or `in-insert`, a second after its begin. With `iceberg`, the table is `lake.db.lines`
in FOLDER/lake, with `delta` FOLDER/table; records with the value `skip` fail, and `at-file:PATTERN`
is when a file of the table exists. The checkpoint and dead letters are in FOLDER, or at the URL in
FOLDER/store.json, with options of Hadoop.

At `suspended-before-entry:KIND` it suspends itself in place of ending.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.config import AgentConfig
from arrester.agents.definition.builder import define
from arrester.agents.definition.stores.files import StagedFiles
from arrester.agents.handlers import ErrorContext, LogAndContinue, LogAndPause, Record, RecordError
from arrester.agents.journal.entries import Entry
from arrester.agents.journal.journal import Journal
from arrester.agents.run.thread import PipelineThread
from arrester.agents.runtime.thread_protocol import PipelineCommand, TaskCommand
from arrester.agents.spark.jvm.stores.jdbc_connection import JdbcConnection
from arrester.agents.transport.flow_store import FlowStore, Pending
from arrester.agents.transport.spool_ownership import open_spool
from arrester.domain.error_policy.policy import Response
from arrester.domain.events import Event, ResumeHow
from arrester.domain.state.states import ThreadStatus
from tests import delta_lake, iceberg, s3_server
from tests.agents.pipeline_bench import APPLICATION, SCHEMA, sink_to
from tests.kafka_broker import connector
from tests.patience import PATIENCE_SECONDS
from tests.postgres_server import jdbc_driver

Row = dict[str, Any]


class FolderOutbox:
    """An outbox that stores each batch in a file, numbered in order of arrival."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self.spool = open_spool(
            folder.parent / "spool", APPLICATION, limit_bytes=2**20, now=datetime.now(UTC)
        )
        self.flow = self.spool.spool.flow

    def put(self, batch_id: UUID, events: Sequence[Event]) -> None:
        if list(self._folder.glob(f"*-{batch_id}.json")):
            return
        number = len(list(self._folder.iterdir()))
        draft = self._folder.with_suffix(".draft")
        draft.write_bytes(b"\n".join(msgspec.json.encode(event) for event in events))
        draft.rename(self._folder / f"{number:06d}-{batch_id}.json")

    def is_confirmed(self, batch_id: UUID) -> bool:
        return False

    def is_stored(self, batch_id: UUID) -> bool:
        return False


def read_outbox(folder: Path) -> list[Event]:
    lines = [
        line for each in sorted(folder.iterdir()) for line in each.read_bytes().splitlines() if line
    ]
    return [msgspec.json.decode(line, type=Event) for line in lines]


def die_at(point: str) -> None:
    """Arrange for this process to be killed, or suspended, when it reaches `point`."""
    when, _, kind = point.partition(":")
    if not when.endswith("-entry"):
        return
    append = Journal.append

    def dying_append(self: Journal, entry: Entry) -> Entry:
        if entry.kind == kind and when == "suspended-before-entry":
            os.kill(os.getpid(), signal.SIGSTOP)
        if entry.kind == kind and when == "before-entry":
            os.kill(os.getpid(), signal.SIGKILL)
        made = append(self, entry)
        if entry.kind == kind and when == "after-entry":
            os.kill(os.getpid(), signal.SIGKILL)
        return made

    Journal.append = dying_append  # type: ignore[method-assign]  # a kill has no better place


def die_at_count(point: str) -> None:
    """Arrange for this process to be killed around the count of a micro-batch."""
    when, _, number = point.partition(":")
    add_pending, settle = FlowStore.add_pending, FlowStore.settle

    def dying_add(self: FlowStore, pending: Pending) -> None:
        add_pending(self, pending)
        if point == f"after-count:{pending.number}":
            os.kill(os.getpid(), signal.SIGKILL)

    def dying_settle(self: FlowStore, committed: Sequence[Pending], **more: Any) -> None:
        if when == "before-settle" and int(number) in {each.number for each in committed}:
            os.kill(os.getpid(), signal.SIGKILL)
        settle(self, committed, **more)

    FlowStore.add_pending = dying_add  # type: ignore[method-assign]
    FlowStore.settle = dying_settle  # type: ignore[method-assign]


def die_in_transaction(point: str) -> None:
    """Arrange for this process to be killed at `point` of its first write into a table."""
    commit, execute = JdbcConnection.commit, JdbcConnection.execute

    def dying_commit(self: JdbcConnection) -> None:
        if point == "before-commit":
            os.kill(os.getpid(), signal.SIGKILL)
        commit(self)
        if point == "after-commit":
            os.kill(os.getpid(), signal.SIGKILL)

    def dying_execute(self: JdbcConnection, sql: str, *parameters: object) -> int:
        if point != "in-insert" or not sql.startswith("INSERT INTO public.lines"):
            return execute(self, sql, *parameters)
        # The check at the start inserts no rows, which takes less.
        killing = threading.Timer(1, os.kill, (os.getpid(), signal.SIGKILL))
        killing.start()
        try:
            return execute(self, sql, *parameters)
        finally:
            killing.cancel()

    JdbcConnection.commit = dying_commit  # type: ignore[method-assign]
    JdbcConnection.execute = dying_execute  # type: ignore[method-assign]


def die_at_publication(point: str) -> None:
    """Arrange for this process to be killed around the first publication of staged files."""
    publish = StagedFiles.publish

    def dying_publish(self: StagedFiles, number: int) -> None:
        if point == "before-publication":
            os.kill(os.getpid(), signal.SIGKILL)
        publish(self, number)
        if point == "after-publication":
            os.kill(os.getpid(), signal.SIGKILL)

    if point.endswith("-publication"):
        StagedFiles.publish = dying_publish  # type: ignore[method-assign]


def die_at_file(folder: Path, point: str) -> None:
    """Arrange for this process to be killed when a file of this pattern exists."""
    when, _, pattern = point.partition(":")

    def watch() -> None:
        while not list(folder.glob(pattern)):
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGKILL)

    if when == "at-file":
        threading.Thread(target=watch, daemon=True).start()


def dying_sink(folder: Path, point: str) -> Callable[[DataFrame, int], None]:
    write = sink_to(folder)

    def sink(df: DataFrame, number: int) -> None:
        try:
            write(df, number)
        except Exception:
            if point == "after-abort":
                os.kill(os.getpid(), signal.SIGKILL)
            raise
        if point == f"after-sink:{number}":
            os.kill(os.getpid(), signal.SIGKILL)

    return sink


class ByValue:
    """A handler to be called: it skips some records and pauses the task of others."""

    def handle(self, context: ErrorContext, record: Record, exception: RecordError) -> Response:
        return Response.CONTINUE if record.row["value"] == "skip" else Response.PAUSE


def store_of(folder: Path) -> tuple[str, dict[str, str]]:
    """Return where checkpoint and dead letters are, and the options of Hadoop for it."""
    file = folder / "store.json"
    if not file.exists():
        return str(folder), {}
    store = json.loads(file.read_text())
    return store["url"], store["options"]


def source_in(spark: SparkSession, folder: Path) -> DataFrame:
    """Return a stream of the topic in `kafka.json`, else of the files in `in`."""
    options = folder / "kafka.json"
    if not options.exists():
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.json(str(folder / "in"))
    reader = spark.readStream.format("kafka").options(**json.loads(options.read_text()))
    return reader.load().selectExpr(
        "string(partition) AS task", "offset AS position", "string(value) AS value"
    )


def main(folder: Path, point: str, end: str) -> None:
    lakes = (*delta_lake.archives(), *iceberg.archives(), *s3_server.archives())
    jars = (*connector(), *jdbc_driver(), *lakes)
    root, options = store_of(folder)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.daemon.module", "tests.spark.daemon")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.jars", ",".join(map(str, jars)))
        .config(map=iceberg.catalog("lake", folder / "lake"))
        .config(map=delta_lake.configuration())
        .config(map={f"spark.hadoop.{name}": value for name, value in options.items()})
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    repaired = str(folder / "repaired")

    def parse(row: Row) -> Row:
        if row["value"] == "skip":
            raise ValueError("to be skipped")
        return row

    def check(row: Row) -> Row:
        if row["value"] == "bad" and not os.path.exists(repaired):
            raise ValueError("bad")
        return row

    lines = define("lines", source_in(spark, folder), task="task", position="position")
    if end == "produce":
        file = str(folder / "sent")

        def send(row: Row) -> None:
            check(parse(row))
            with open(file, "a") as sent:
                sent.write(f"{row['task']} {row['position']}\n")

        pipeline = lines.produce(send, on_error=ByValue())
    elif end == "files":
        parsed = lines.process("parse", parse, on_error=LogAndContinue())
        files = str(folder / "files")
        pipeline = parsed.write_files(files, format="json", number_column="number")
        die_at_publication(point)
    elif end == "jdbc":
        url, user, password = os.environ["JDBC_URL"].split()
        login = {"user": user, "password": password}
        parsed = lines.process("parse", parse, on_error=LogAndContinue())
        pipeline = parsed.write_jdbc("lines", url=url, options=login)
    elif end in ("iceberg", "delta"):
        path = folder / ("lake/db/lines" if end == "iceberg" else "table")
        table = "lake.db.lines" if end == "iceberg" else f"delta.`{path}`"
        columns = "task STRING, position BIGINT, value STRING"
        spark.sql(f"CREATE TABLE IF NOT EXISTS {table} ({columns}) USING {end}")
        value = F.expr("if(value = 'skip', string(int(value)), value)")
        parsed = lines.columns("parse", value=value, on_error=LogAndContinue())
        if end == "iceberg":
            pipeline = parsed.write_iceberg(table)
        else:
            pipeline = parsed.write_delta(str(path))
        die_at_file(path, point)
    else:
        pipeline = (
            lines.process("parse", parse, on_error=LogAndContinue())
            .process("check", check, on_error=LogAndPause())
            .write(dying_sink(folder / "out", point), atomic=end == "atomic")
        )
    die_at(point)
    die_at_count(point)
    outbox = FolderOutbox(folder / "outbox")
    thread = PipelineThread(
        pipeline,
        application=APPLICATION,
        instance=uuid4(),
        outbox=outbox,
        config=AgentConfig.read(
            APPLICATION,
            {"errors.dlq.enable": True, "errors.dlq.path": f"{root}/dlq"},
            environment={"ARRESTER_SPOOL": str(folder / "spool"), "REDIS_URL": "redis://unused"},
        ),
        on_end=lambda end: print(end, flush=True),
    )
    if end == "jdbc":
        die_in_transaction(point)
    thread.start(f"{root}/checkpoint")
    while not (folder / "stop").exists() and thread.state is ThreadStatus.RUNNING:
        if (folder / "skip").exists():
            for task in thread.paused_tasks():
                (folder / "skip").unlink(missing_ok=True)
                thread.apply(TaskCommand(task.id.key, how=ResumeHow.SKIP, reason="known"))
        for name, pauses in (("pause", True), ("resume", False)):
            if (folder / name).exists():
                (folder / name).unlink()
                thread.apply(PipelineCommand(pauses=pauses, actor="ana"))
        time.sleep(0.05)
    thread.stop("stopped", timeout_seconds=PATIENCE_SECONDS)
    outbox.spool.close()
    spark.stop()


if __name__ == "__main__":
    given = [*sys.argv[2:], "", ""]
    main(Path(sys.argv[1]), given[0], given[1])

"""kill -9 of the driver at any moment: no record is lost or written twice, decisions are obeyed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import LiteralString
from uuid import uuid4

import psutil
import pytest
from pyspark.sql import SparkSession

from arrester.agents.journal.storage import LocalStorage, Storage, last_committed, last_planned
from arrester.agents.spark.jvm.stores.hadoop_storage import storage
from arrester.agents.transport.spool_ownership import open_spool
from arrester.domain.events import (
    FlowMeasured,
    RecordFailed,
    RecordsDeadLettered,
    TaskPaused,
)
from arrester.domain.state.states import TaskStatus
from tests import delta_lake, iceberg, postgres_server, s3_server
from tests.agents.killable_driver import read_outbox, store_of
from tests.agents.measured_flow import flow_in
from tests.agents.pipeline_bench import APPLICATION, read_sink, server_state, write_batch
from tests.kafka_broker import KafkaBroker, Sent
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.services import REPOSITORY

# Drivers run one after the other, and start slowly on a busy machine.
pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(1800)]


class Driver:
    """Successive driver processes at one checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: The end of the pipeline: `produce`, `atomic` for such a sink, or a sink that is not.
        self.end = ""
        self.process: subprocess.Popen[bytes] | None = None
        #: The checkpoint.
        self.files: Storage = LocalStorage(str(folder / "checkpoint"))

    def start(self, point: str = "") -> None:
        module = "tests.agents.killable_driver"
        command = [sys.executable, "-m", module, str(self.folder), point, self.end]
        log = (self.folder / "driver.log").open("ab")
        self.process = subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log)
        log.close()

    def dies(self) -> None:
        assert self.process is not None
        assert self.process.wait(timeout=PATIENCE_SECONDS) == -signal.SIGKILL, self.log()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.dies()

    def stop(self) -> None:
        assert self.process is not None
        wait_until(self.is_committed, what=self.log())
        (self.folder / "stop").touch()
        assert self.process.wait(timeout=PATIENCE_SECONDS) == 0, self.log()
        (self.folder / "stop").unlink()

    def is_committed(self) -> bool:
        """Whether Spark has committed all micro-batches that it planned."""
        return last_committed(self.files) == last_planned(self.files) >= 0

    def flow(self) -> FlowMeasured:
        """Return what the drivers counted."""
        folder, now = self.folder / "spool", datetime.now(UTC)
        own = open_spool(folder, APPLICATION, limit_bytes=2**20, now=now)
        flow = flow_in(own.spool)
        own.close()
        return flow

    def log(self) -> str:
        return (self.folder / "driver.log").read_text()[-5_000:]

    def positions(self, task: str) -> list[int]:
        rows = [row for _, row in read_sink(self.folder / "out")]
        return [row["position"] for row in rows if row["task"] == task]

    def held(self) -> int:
        """Return the number of held records that the events report."""
        tasks = server_state(read_outbox(self.folder / "outbox")).tasks.values()
        return sum(task.held for task in tasks)

    def sent(self, task: str) -> list[int]:
        """Return the records sent of a task, in order, with repetitions."""
        file = self.folder / "sent"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [int(position) for name, position in lines if name == task]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    rows = [
        [("a", 0, "x"), ("a", 1, "x"), ("b", 0, "x")],
        [("a", 2, "bad"), ("a", 3, "x"), ("b", 1, "x"), ("b", 2, "skip")],
        [("a", 4, "x"), ("b", 3, "x")],
    ]
    for number, batch in enumerate(rows):
        named = [dict(zip(("task", "position", "value"), row, strict=True)) for row in batch]
        write_batch(tmp_path / "in", number, named)
    made = Driver(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()


@pytest.mark.long
def test_a_driver_killed_while_a_task_is_paused(driver: Driver, spark: SparkSession) -> None:
    driver.start()
    wait_until(lambda: driver.positions("b") == [0, 1, 3], what=driver.log())
    driver.kill()
    (driver.folder / "repaired").touch()

    driver.start()

    # The new instance restarts the task at the failed record.
    wait_until(lambda: driver.positions("a") == [0, 1, 2, 3, 4], what=driver.log())
    driver.stop()
    assert driver.positions("b") == [0, 1, 3]
    check_all(driver, spark, failed=2)


@pytest.mark.long
def test_a_driver_killed_while_a_kafka_partition_is_paused(
    driver: Driver, kafka_broker: KafkaBroker
) -> None:
    topic = "killed-driver"
    kafka_broker.make(topic, 2)
    options = {
        "kafka.bootstrap.servers": kafka_broker.servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "6",
    }
    (driver.folder / "kafka.json").write_text(json.dumps(options))

    def send(partition: int, *values: str) -> None:
        records = (Sent(value=each.encode(), partition=partition) for each in values)
        kafka_broker.send(topic, *records)

    send(0, "x", "bad", "x", "x")
    send(1, "x", "x", "skip", "x")
    driver.start()
    wait_until(lambda: driver.positions("1") == [0, 1, 3], what=driver.log())
    # In the middle of micro-batches, and of the pause.
    send(0, *"x" * 20)
    send(1, *"x" * 20)
    wait_until(lambda: driver.positions("1") != [0, 1, 3], what=driver.log())
    driver.kill()
    assert driver.positions("0") == [0]
    send(0, "x", "x")
    driver.start("after-entry:batch")
    driver.dies()
    (driver.folder / "repaired").touch()

    driver.start()
    wait_until(
        lambda: [len(driver.positions(task)) for task in "01"] == [26, 23], what=driver.log()
    )
    driver.stop()
    # By an independent reading of the topic.
    expected: dict[str, list[int]] = {"0": [], "1": []}
    for each in kafka_broker.messages(topic):
        if each.value() != b"skip":
            expected[str(each.partition())].append(each.offset() or 0)
    assert {task: driver.positions(task) for task in "01"} == expected
    events = [event.data for event in read_outbox(driver.folder / "outbox")]
    dead_letters = [each for each in events if isinstance(each, RecordsDeadLettered)]
    assert [(each.task, each.first_position) for each in dead_letters] == [("1", 2)]
    tasks = server_state(read_outbox(driver.folder / "outbox")).tasks.values()
    assert [each.status for each in tasks if each.status is TaskStatus.PAUSED] == []


@pytest.mark.long
@pytest.mark.parametrize("store", ["disk", "s3"])
def test_a_driver_killed_at_every_point(
    driver: Driver, spark: SparkSession, store: str, request: pytest.FixtureRequest
) -> None:
    if store == "s3":
        put_on_s3(driver, spark, request)
    points = [
        "before-entry:batch",  # rows are stored, the decision is not durable
        "after-entry:batch",  # it is; nothing is published, the sink was not called
        "after-sink:1",  # the sink has written, Spark has not committed
        "after-count:1",  # the same, and its records are counted
        "before-settle:1",  # Spark has committed, it is not known that they count
    ]
    for point in points:
        driver.start(point)
        driver.dies()
    (driver.folder / "repaired").touch()
    driver.start("before-entry:drained")  # a chunk of held rows is written, and not known to be
    driver.dies()

    driver.start()

    # Rows are visible before it is known that they are written.
    wait_until(lambda: not driver.held(), what=driver.log())
    driver.stop()
    assert driver.positions("a") == [0, 1, 2, 3, 4]
    assert driver.positions("b") == [0, 1, 3]
    check_all(driver, spark, failed=2)


@pytest.mark.long
def test_a_driver_killed_between_the_fast_path_and_the_slow_path(
    driver: Driver, spark: SparkSession
) -> None:
    driver.end = "atomic"
    driver.start("after-abort")
    driver.dies()
    assert driver.positions("a") == [0, 1]
    assert not (driver.folder / "checkpoint" / "arrester" / "held").exists()
    (driver.folder / "repaired").touch()

    driver.start()

    wait_until(lambda: driver.positions("b") == [0, 1, 3], what=driver.log())
    wait_until(lambda: driver.positions("a") == [0, 1, 2, 3, 4], what=driver.log())
    driver.stop()
    dead_letters = spark.read.parquet(f"{store_of(driver.folder)[0]}/dlq").collect()
    assert [(row["task"], row["position"]) for row in dead_letters] == [("b", 2)]
    events = [event.data for event in read_outbox(driver.folder / "outbox")]
    assert [each.count for each in events if isinstance(each, RecordFailed)] == [1]


@pytest.mark.long
def test_a_driver_killed_after_held_records_took_the_fast_path(
    driver: Driver, spark: SparkSession
) -> None:
    driver.end = "atomic"
    driver.start()
    wait_until(lambda: driver.positions("b") == [0, 1, 3], what=driver.log())
    driver.kill()
    (driver.folder / "repaired").touch()
    for point in (
        "after-entry:drain",  # the chunk is open, the sink was not called
        "before-entry:drained",  # it is written, and not known to be
    ):
        driver.start(point)
        driver.dies()

    driver.start()

    # Rows are visible before their write has ended.
    wait_until(lambda: not driver.held(), what=driver.log())
    driver.stop()
    assert driver.positions("a") == [0, 1, 2, 3, 4]
    check_all(driver, spark, failed=2)


@pytest.mark.long
def test_a_driver_killed_after_a_skip_stores_its_dead_letter_once(
    driver: Driver, spark: SparkSession
) -> None:
    driver.start("after-entry:resume")  # the record is skipped, its dead letter is not stored
    wait_until(lambda: driver.positions("b") == [0, 1, 3], what=driver.log())
    (driver.folder / "skip").touch()
    driver.dies()
    driver.start("after-entry:dead_letters")  # it is stored, and not at its destination
    driver.dies()
    assert dead_letters_of(driver, spark) == [("b", 2)]

    driver.start()

    wait_until(lambda: not driver.held(), what=driver.log())
    driver.stop()
    assert driver.positions("a") == [0, 1, 3, 4]
    check_all(driver, spark, failed=2, dead_letters=[("a", 2), ("b", 2)])


@pytest.mark.long
def test_a_driver_killed_while_its_pipeline_is_paused(driver: Driver, spark: SparkSession) -> None:
    (driver.folder / "repaired").touch()
    (driver.folder / "pause").touch()
    driver.start("after-entry:pipeline")  # it is PAUSED, and the command is not answered
    driver.dies()
    before = [driver.positions(task) for task in "ab"]
    numbers = driver.folder / "checkpoint" / "offsets", driver.folder / "checkpoint" / "commits"

    def is_planned() -> bool:
        offsets, commits = (len(list(each.glob("[0-9]*"))) for each in numbers)
        return "starts PAUSED by ana" in driver.log() and offsets > commits

    driver.start()
    wait_until(is_planned, what=driver.log())
    driver.kill()
    assert [driver.positions(task) for task in "ab"] == before

    driver.start()
    (driver.folder / "resume").touch()
    # Killed while it plans its first micro-batch, Spark reads the first two files as one, in any
    # order.
    expected = [[0, 1, 2, 3, 4], [0, 1, 3]]
    wait_until(
        lambda: [sorted(driver.positions(task)) for task in "ab"] == expected, what=driver.log()
    )
    driver.stop()
    assert dead_letters_of(driver, spark) == [("b", 2)]
    [thread] = server_state(read_outbox(driver.folder / "outbox")).threads.values()
    assert (thread.epoch, thread.paused) == (3, None)


@pytest.mark.long
def test_a_driver_killed_while_it_sends(driver: Driver, spark: SparkSession) -> None:
    driver.end = "produce"
    driver.start("before-entry:batch")  # all is sent but what failed; nothing is decided
    driver.dies()
    assert (driver.sent("a"), driver.sent("b")) == ([0, 1], [0, 1])
    driver.start("after-entry:batch")  # it is decided again, durably now
    driver.dies()
    (driver.folder / "repaired").touch()
    driver.start("before-entry:drained")  # held records are sent, and not known to be
    driver.dies()

    driver.start()

    wait_until(lambda: 4 in driver.sent("a") and 3 in driver.sent("b"), what=driver.log())
    driver.stop()
    for task, positions in {"a": [0, 1, 2, 3, 4], "b": [0, 1, 3]}.items():
        sent = driver.sent(task)
        # At least once, and never ahead of an earlier record of the task.
        assert list(dict.fromkeys(sent)) == positions
        assert list(dict.fromkeys(reversed(sent))) == positions[::-1]
    check_all(driver, spark, failed=2)


def dead_letters_of(driver: Driver, spark: SparkSession) -> list[tuple[str, int]]:
    """Return task and position of the dead letters at their destination."""
    rows = spark.read.parquet(f"{store_of(driver.folder)[0]}/dlq").collect()
    return sorted((row["task"], row["position"]) for row in rows)


def put_on_s3(driver: Driver, spark: SparkSession, request: pytest.FixtureRequest) -> None:
    """Let the driver have its checkpoint and dead letters in a new bucket."""
    url, server = request.getfixturevalue("bucket"), request.getfixturevalue("s3")
    store = {"url": url, "options": s3_server.configuration(server)}
    (driver.folder / "store.json").write_text(json.dumps(store))
    driver.files = storage(spark, f"{url}/checkpoint")


def check_all(
    driver: Driver,
    spark: SparkSession,
    *,
    failed: int,
    dead_letters: Sequence[tuple[str, int]] = (("b", 2),),
) -> None:
    """Check that sink, dead letters and counts add up to the input."""
    assert dead_letters_of(driver, spark) == list(dead_letters)
    events = read_outbox(driver.folder / "outbox")
    data = [event.data for event in events]
    assert sum(each.count for each in data if isinstance(each, RecordFailed)) == failed
    stored = sum(each.count for each in data if isinstance(each, RecordsDeadLettered))
    assert stored == len(dead_letters)
    assert any(isinstance(each, TaskPaused) for each in data)
    tasks = server_state(events).tasks.values()
    assert all((task.status, task.held) == (TaskStatus.RUNNING, 0) for task in tasks)
    flow = driver.flow()
    assert (flow.records_in, flow.failed, flow.skipped) == (9, failed, len(dead_letters))
    assert flow.held == flow.drained


@pytest.mark.long
def test_a_driver_killed_around_a_publication_leaves_each_row_once_in_its_files(
    tmp_path: Path, spark: SparkSession
) -> None:
    skipped = {1, 2, 3}
    for number in range(5):
        values = ["x", "skip" if number in skipped else "x", "x"]
        rows = [
            {"task": "a", "position": 3 * number + at, "value": value}
            for at, value in enumerate(values)
        ]
        write_batch(tmp_path / "in", number, rows)
    driver = Driver(tmp_path)
    driver.end = "files"
    points = [
        "before-entry:batch",  # the rows are staged, the decision is not durable
        "after-entry:batch",  # it is; nothing is published
        "before-publication",  # the same, in the next micro-batch
        "after-publication",  # all is visible, Spark has not committed
    ]
    left = []
    for point in points:
        driver.start(point)
        driver.dies()
        left.append(len(list((tmp_path / "files").glob("_arrester_*"))))
    assert left == [1, 1, 1, 0]
    driver.start()
    # Between two micro-batches all that are planned are committed.
    storage = LocalStorage(str(tmp_path / "checkpoint"))
    wait_until(lambda: last_committed(storage) == 4, what=driver.log())
    driver.stop()

    assert not list((tmp_path / "files").glob("_arrester_*"))
    written = spark.read.json(str(tmp_path / "files")).select("position").collect()
    missing = {3 * number + 1 for number in skipped}
    assert sorted(position for (position,) in written) == sorted({*range(15)} - missing)
    assert dead_letters_of(driver, spark) == [("a", position) for position in sorted(missing)]
    data = [event.data for event in read_outbox(tmp_path / "outbox")]
    assert sum(each.count for each in data if isinstance(each, RecordFailed)) == 3
    assert sum(each.count for each in data if isinstance(each, RecordsDeadLettered)) == 3
    flow = driver.flow()
    assert (flow.records_in, flow.failed, flow.skipped, flow.micro_batches) == (15, 3, 3, 5)


@pytest.mark.long
@pytest.mark.parametrize("store", ["local disk", "S3"])
def test_a_driver_that_was_suspended_writes_nothing_after_another_has_taken_over(
    driver: Driver, spark: SparkSession, request: pytest.FixtureRequest, store: str
) -> None:
    """Its rows of a micro-batch are staged, and it continues with the decision about them."""
    if store == "S3":
        put_on_s3(driver, spark, request)
    driver.end = "files"
    driver.start("suspended-before-entry:batch")
    assert driver.process is not None
    suspended = psutil.Process(driver.process.pid)
    wait_until(lambda: suspended.status() == psutil.STATUS_STOPPED, what=driver.log())
    first = driver.process

    driver.start()
    wait_until(lambda: last_committed(driver.files) == 2, what=driver.log())
    files = str(driver.folder / "files")
    written = sorted(Path(files).rglob("*.json"))
    try:
        first.send_signal(signal.SIGCONT)
        assert first.wait(timeout=PATIENCE_SECONDS) == 0, driver.log()
    finally:
        first.kill()
    driver.stop()

    assert "superseded=True" in driver.log()
    assert sorted(Path(files).rglob("*.json")) == written
    rows = sorted((row["task"], row["position"]) for row in spark.read.json(files).collect())
    assert rows == [*(("a", position) for position in range(5)), ("b", 0), ("b", 1), ("b", 3)]
    assert dead_letters_of(driver, spark) == [("b", 2)]


@pytest.mark.long
def test_a_driver_killed_around_a_commit_leaves_each_row_once_in_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = ("before-commit", "after-commit", "in-insert")
    for number, task in enumerate("abc"):
        # Of one record of each, the decision is durable before the commit.
        rows = [
            {"task": task, "position": position, "value": "skip" if position == 3 else task}
            for position in range(4)
        ]
        write_batch(tmp_path / "in", number, rows)
    with postgres_server.running() as postgres:
        postgres.execute("CREATE TABLE lines (task text, position bigint, value text)")
        # A killed driver's statement goes on while the next driver repeats its write.
        postgres.execute(
            """CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                PERFORM pg_sleep(12) FROM arrester_numbers WHERE number = 1;
                RETURN NULL; END $$""",
            "CREATE TRIGGER wait AFTER INSERT ON lines EXECUTE FUNCTION wait()",
        )
        login = (postgres.url, postgres.options["user"], postgres.options["password"])
        monkeypatch.setenv("JDBC_URL", " ".join(login))
        driver = Driver(tmp_path)
        driver.end = "jdbc"
        written: list[list[tuple[str, int]]] = []
        for point in points:
            driver.start(point)
            driver.dies()
            written.append(postgres.rows("SELECT task, count(*) FROM lines GROUP BY 1 ORDER BY 1"))
        assert written == [[("a", 3)] if point != "before-commit" else [] for point in points]
        driver.start()
        count: LiteralString = "SELECT count(*) FROM lines"
        wait_until(lambda: postgres.rows(count) >= [(9,)])
        driver.stop()
        rows_of_tasks = postgres.rows(
            "SELECT task, count(DISTINCT position), count(*) FROM lines GROUP BY 1 ORDER BY 1"
        )
        assert rows_of_tasks == [(task, 3, 3) for task in "abc"]
        assert postgres.rows("SELECT number FROM arrester_numbers") == [(2,)]
        left = postgres.rows("SELECT relname FROM pg_class WHERE relname LIKE 'arrester_staging%'")
        assert left == []
        flow = driver.flow()
        assert (flow.records_in, flow.skipped, flow.micro_batches) == (12, 3, 3)


@pytest.mark.parametrize(
    "points",
    [
        # Before Spark's commit of the micro-batch.
        ("at-file:metadata/v2.metadata.json",),
        # Before Iceberg's commit, and after it.
        ("at-file:data/*.parquet", "at-file:metadata/v2.metadata.json"),
        # The rows are staged: before the decision is durable, and before they are published.
        ("before-entry:batch", "after-entry:batch"),
    ],
)
@pytest.mark.long
@pytest.mark.skipif(not iceberg.archives(), reason="there is no Iceberg for this Spark")
def test_a_driver_killed_around_a_commit_leaves_each_row_once_in_its_iceberg_table(
    driver: Driver, spark: SparkSession, points: Sequence[str]
) -> None:
    driver.end = "iceberg"
    for point in points:
        driver.start(point)
        driver.dies()
        if point == "before-entry:batch":
            # That of the first micro-batch, and the staged one.
            assert len(list((driver.folder / "lake/db/lines/data").glob("*.parquet"))) == 2
    driver.start()
    # A session keeps the folder of a catalog that it has opened.
    catalog = f"killed_{uuid4().hex}"
    for name, value in iceberg.catalog(catalog, driver.folder / "lake").items():
        spark.conf.set(name, value)

    def written() -> list[tuple[str, int]]:
        spark.sql(f"REFRESH TABLE {catalog}.db.lines")
        rows = spark.table(f"{catalog}.db.lines").select("task", "position").collect()
        return sorted((row["task"], row["position"]) for row in rows)

    wait_until(lambda: len(written()) >= 8, what="the rows")
    driver.stop()
    assert written() == [*(("a", at) for at in range(5)), *(("b", at) for at in (0, 1, 3))]
    flow = driver.flow()
    assert (flow.records_in, flow.skipped, flow.micro_batches) == (9, 1, 3)
    assert dead_letters_of(driver, spark) == [("b", 2)]


@pytest.mark.parametrize(
    "points",
    [
        # Before Spark's commit of the micro-batch.
        ("at-file:_delta_log/00000000000000000001.json",),
        # Before Delta's commit, and after it.
        ("at-file:*.parquet", "at-file:_delta_log/00000000000000000001.json"),
        # The rows are staged: before the decision is durable, and before they are published.
        ("before-entry:batch", "after-entry:batch"),
    ],
)
@pytest.mark.long
@pytest.mark.skipif(not delta_lake.archives(), reason="there is no Delta Lake for this Spark")
def test_a_driver_killed_around_a_commit_leaves_each_row_once_in_its_delta_table(
    driver: Driver, spark: SparkSession, points: Sequence[str]
) -> None:
    driver.end = "delta"
    for point in points:
        driver.start(point)
        driver.dies()
        if point == "before-entry:batch":
            # That of the first micro-batch, and the staged one.
            assert len(list((driver.folder / "table").glob("*.parquet"))) == 2
    driver.start()
    table = f"delta.`{driver.folder / 'table'}`"

    def written() -> list[tuple[str, int]]:
        rows = spark.table(table).select("task", "position").collect()
        return sorted((row["task"], row["position"]) for row in rows)

    wait_until(lambda: len(written()) >= 8, what="the rows")
    driver.stop()
    assert written() == [*(("a", at) for at in range(5)), *(("b", at) for at in (0, 1, 3))]
    flow = driver.flow()
    assert (flow.records_in, flow.skipped, flow.micro_batches) == (9, 1, 3)
    assert dead_letters_of(driver, spark) == [("b", 2)]

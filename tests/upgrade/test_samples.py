"""What earlier versions have written is read: log, spool and checkpoint of each released version.

`python -m tests.upgrade.freeze` makes a sample.
"""

from __future__ import annotations

import csv
import json
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from redis import Redis

from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.agents.transport.spool_ownership import open_spool
from arrester.controlplane import embedded
from arrester.controlplane.history import rebuild
from arrester.controlplane.ingest import fold_stream
from arrester.domain.events import Event, RecordFailed, ResumeHow
from arrester.domain.wire import received_batch
from tests import histories
from tests.agents.pipeline_bench import Bench
from tests.agents.sample_events import NOW
from tests.controlplane import streams
from tests.patience import wait_until
from tests.services import REPOSITORY
from tests.upgrade.sample import APPLICATION, ROWS, pipeline_over

VERSIONS = sorted(path.parent for path in (REPOSITORY / "tests" / "data").glob("*/expected.json"))
each_version = pytest.mark.parametrize("version", VERSIONS, ids=[path.name for path in VERSIONS])
#: The migrations that fill a table from others.
DERIVING = ("0031_failure_totals", "0034_hour_stage")


def expected(version: Path, part: str) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = json.loads((version / "expected.json").read_text())
    return found[part]


def test_there_is_a_sample_of_the_first_release() -> None:
    assert "0.2.0" in [path.name for path in VERSIONS]


@each_version
def test_a_log_is_read_rebuilt_and_continued(
    version: Path, redis: Redis, fresh_database: embedded.Urls
) -> None:
    restore(version / "log", fresh_database)
    known = expected(version, "log")
    log = streams.log()
    assert len(log) == known["events"]
    assert sorted({each.event.type for each in log}) == known["types"]
    assert sum(task.failed for task in streams.reference().tasks.values()) == known["failed"]
    streams.assert_exact()

    rebuild.rebuild(APPLICATION)
    streams.send(redis, histories.started())
    fold_stream.fold_stream(APPLICATION)
    assert len(streams.log()) == known["events"] + len(histories.started())
    streams.assert_exact()


def restore(folder: Path, urls: embedded.Urls) -> None:
    """Copy the rows of a sample into a database, and fill what migrations derive from them."""
    with psycopg.connect(urls.migrate_database) as owner:
        for path in folder.glob("*.csv"):
            with path.open(newline="") as rows:
                columns = next(csv.reader(rows))
            table = sql.Identifier(path.stem)
            copy = sql.SQL("COPY {} ({}) FROM STDIN WITH (FORMAT csv, HEADER)").format(
                table, sql.SQL(", ").join(map(sql.Identifier, columns))
            )
            with owner.cursor() as cursor, cursor.copy(copy) as target:
                target.write(path.read_bytes())
            if "id" in columns and path.stem in ("stream", "quarantine"):
                owner.execute(
                    sql.SQL(
                        "SELECT setval(pg_get_serial_sequence({}, 'id'), max(id)) FROM {}"
                    ).format(path.stem, table)
                )
        for migration in DERIVING:
            owner.execute(import_module(f"arrester.migrations.{migration}").FILL.encode())


@each_version
def test_a_spool_is_continued(version: Path, tmp_path: Path) -> None:
    shutil.copytree(version / "spool", tmp_path / "spool")
    known = expected(version, "spool")
    own = open_spool(tmp_path / "spool", APPLICATION, limit_bytes=2**30, now=NOW)
    own.spool.mark_lost()
    batches = own.spool.unsent(most=10, most_bytes=2**30)
    assert [str(batch.id) for batch in batches] == list(known["batches"])
    first = [received_batch.decode_batch(batch.events)[0] for batch in batches]
    failed = [each.data for each in first if isinstance(each, Event)]
    numbers = [each.position for each in failed if isinstance(each, RecordFailed)]
    assert numbers == list(known["batches"].values())
    assert str(known["confirmed"]) not in known["batches"]
    own.close()


@pytest.mark.spark
@each_version
def test_a_checkpoint_is_continued(version: Path, bench: Bench) -> None:
    shutil.copytree(version / "checkpoint", bench.checkpoint)
    known = expected(version, "checkpoint")
    bench.add(*ROWS)
    thread = bench.start(pipeline_over(bench))
    wait_until(lambda: thread.is_idle, what="rest")
    paused = {each.id.key: [each.position, each.held] for each in thread.paused_tasks()}
    assert paused == known["paused"]
    assert bench.written() == []
    assert [
        (dead_letter["task"], dead_letter["position"]) for dead_letter in bench.dead_letters()
    ] == [("b", 0)]

    assert thread.apply(TaskCommand("a", how=ResumeHow.SKIP)).applied
    wait_until(lambda: len(bench.written()) == 2, what="held records")
    assert bench.written() == [("a", 2), ("a", 3)]

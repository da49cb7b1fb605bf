"""Write the sample of this version that later versions are tested with.

    python -m tests.upgrade.freeze tests/data/0.2.0

Run it once per release. A sample never changes: it is what users of that version have.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from hypothesis import Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from arrester.domain.events import Event, EventData
from tests import histories, services
from tests.upgrade.sample import APPLICATION, ROWS, pipeline_over

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
#: Neutral, because it becomes part of the sample.
FOLDER = Path(tempfile.gettempdir()) / "sample"
STORED_COLUMNS = """
SELECT quote_ident(column_name) FROM information_schema.columns
WHERE table_name = %s AND is_generated = 'NEVER' ORDER BY ordinal_position
"""


def main() -> None:
    """Write `log/`, `spool/`, `checkpoint/` and `expected.json` into the folder named."""
    place = Path(sys.argv[1])
    place.mkdir(parents=True)
    shutil.rmtree(FOLDER, ignore_errors=True)
    expected = {
        "log": freeze_log(place / "log"),
        "spool": freeze_spool(place / "spool"),
        "checkpoint": freeze_checkpoint(place / "checkpoint"),
    }
    (place / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")


def freeze_log(place: Path) -> dict[str, Any]:
    """Fold events of all types and copy every table; return what the log contains."""
    with services.running() as urls:
        os.environ |= {
            "DATABASE_URL": urls.database,
            "MIGRATE_DATABASE_URL": urls.migrate_database,
            "REDIS_URL": urls.redis,
            "ARRESTER_SECRET_KEY": "only for samples " * 4,
            "DJANGO_SETTINGS_MODULE": "arrester.controlplane.settings",
        }
        services.make_template(urls)
        services.clone(urls)
        import django

        django.setup()
        from arrester.controlplane.ingest import fold_stream
        from arrester.controlplane.redis import redis_client
        from tests.controlplane import streams

        redis = redis_client.client()
        for events in generated_batches():
            streams.send(redis, events)
        streams.put(redis, {"hello": "not a batch"})
        fold_stream.fold_stream(APPLICATION)
        streams.append(generated(histories.server_events), received_at=datetime.now(UTC))
        streams.assert_exact()
        copy_tables(place)
        log = streams.log()
        types = {each.event.type for each in log}
        assert types == {each.__name__ for each in get_args(EventData)}, types
        return {
            "events": len(log),
            "types": sorted(types),
            "failed": sum(task.failed for task in streams.reference().tasks.values()),
        }


def generated_batches() -> list[list[Event]]:
    """Return batches of an agent with every type of event, and with failed records as columns."""
    found = [generated(histories.agent_events)]

    @seed(2)
    @settings(max_examples=20, database=None, phases=[Phase.generate])
    @given(histories.floods)
    def generate(events: list[Event]) -> None:
        if events:
            found.append(events)

    generate()
    return found


def generated(events: SearchStrategy[Event]) -> list[Event]:
    """Return three events of each type that a strategy makes."""
    found: dict[str, list[Event]] = defaultdict(list)

    @seed(2)
    @settings(max_examples=5_000, database=None, phases=[Phase.generate])
    @given(events)
    def generate(event: Event) -> None:
        if len(found[event.type]) < 3:
            found[event.type].append(event)

    generate()
    return [event for each in found.values() for event in each]


def copy_tables(place: Path) -> None:
    """Write the rows of every table as CSV."""
    from django.apps import apps
    from django.db import connection

    place.mkdir()
    for model in apps.get_app_config("controlplane").get_models():
        table = model._meta.db_table
        with connection.cursor() as cursor:
            cursor.execute(STORED_COLUMNS, [table])
            columns = ", ".join(name for (name,) in cursor.fetchall())
            copy = f"COPY (SELECT {columns} FROM {table}) TO STDOUT WITH (FORMAT csv, HEADER)"
            with cursor.copy(copy) as rows:
                content = b"".join(bytes(part) for part in rows)
        if content.count(b"\n") > 1:
            (place / f"{table}.csv").write_bytes(content)


def freeze_spool(place: Path) -> dict[str, Any]:
    """Leave a spool as a killed instance does; return its unconfirmed batches."""
    from arrester.agents.transport.spool_ownership import open_spool
    from tests.agents.sample_events import batch_id, some_events

    own = open_spool(place, APPLICATION, limit_bytes=2**30, now=NOW)
    for number in range(4):
        own.spool.put(batch_id(number), some_events(number + 1))
    first, second, *_ = own.spool.unsent(most=10, most_bytes=2**30)
    own.spool.mark_sent([first, second], ["1-0", "2-0"])
    own.spool.confirm([first.id])
    own.spool.close()
    for lock in place.rglob("*.lock"):
        lock.unlink()
    return {
        "confirmed": str(batch_id(0)),
        "batches": {str(batch_id(number)): number + 1 for number in range(1, 4)},
    }


def freeze_checkpoint(place: Path) -> dict[str, Any]:
    """Leave a checkpoint with held records and a waiting dead letter; return what it contains."""
    from pyspark.sql import SparkSession

    from tests.agents.pipeline_bench import Bench
    from tests.patience import wait_until

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = spark.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    bench = Bench(session, FOLDER)
    bench.add(*ROWS)
    # Dead letters cannot be written into a file: they wait in the checkpoint.
    (FOLDER / "dlq").mkdir()
    (FOLDER / "dlq" / f"day={datetime.now(UTC).date()}").write_text("")
    handler = "arrester.agents.handlers.LogAndContinue"
    thread = bench.start(pipeline_over(bench), default_production_exception_handler=handler)
    wait_until(lambda: thread.is_idle, what="rest")
    bench.close()
    session.stop()
    shutil.copytree(bench.checkpoint, place)
    return {
        "written": sorted(bench.written()),
        "paused": {str(each.id.key): [each.position, each.held] for each in thread.paused_tasks()},
        "events": len(bench.outbox.events),
    }


if __name__ == "__main__":
    main()

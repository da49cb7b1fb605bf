"""Add what flowed through pipelines, per minute and per hour, and an index of their runs."""

from __future__ import annotations

import hashlib
from typing import Any

from django.db import migrations, models


def key(name: str) -> int:
    """Return the number of an event type, as `store.column_values` computes it."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], signed=True)


RUNS = f"""
CREATE INDEX event_of_run ON event (stream, pipeline, sequence)
    WHERE type IN ({key("ThreadStarted")}, {key("ThreadDied")});
"""
# A server of its own may have no such role: then one role owns and uses the tables.
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON flow_minute, flow_hour TO arrester_app;
    END IF;
END
$$;
"""


def flow(name: str, time: str) -> migrations.CreateModel:
    """Return the creation of a table with sums of an interval of time."""
    counts = ["micro_batches", "records_in", "records_out", "failed", "skipped", "held", "drained"]
    fields: list[tuple[str, models.Field[Any, Any]]] = [
        ("application", models.TextField()),
        ("pipeline", models.TextField()),
        ("checkpoint", models.TextField()),
        ("epoch", models.BigIntegerField()),
        *((count, models.BigIntegerField()) for count in counts),
        ("durations", models.JSONField()),
        ("last_batch_at", models.DateTimeField(null=True)),
        ("backlog", models.BigIntegerField(null=True)),
        ("backlog_unit", models.TextField(null=True)),
        ("watermark", models.DateTimeField(null=True)),
        ("observed", models.BooleanField()),
        ("sequence", models.BigIntegerField()),
        (
            "pk",
            models.CompositePrimaryKey(
                *("application", "pipeline", "checkpoint", time, "epoch"),
                blank=True,
                editable=False,
                primary_key=True,
                serialize=False,
            ),
        ),
        (time, models.DateTimeField()),
    ]
    table = f"flow_{time}"
    return migrations.CreateModel(
        name=name,
        fields=fields,
        options={
            "db_table": table,
            "indexes": [models.Index(models.F(time), name=f"{table}_newest")],
        },
    )


class Migration(migrations.Migration):
    """The index takes some seconds for some million events."""

    dependencies = [
        ("controlplane", "0021_redrive_selection"),
    ]

    operations = [
        flow("FlowHour", "hour"),
        flow("FlowMinute", "minute"),
        migrations.RunSQL(RUNS, "DROP INDEX event_of_run"),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]

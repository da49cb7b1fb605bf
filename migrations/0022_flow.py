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
        GRANT SELECT, INSERT, UPDATE, DELETE ON flow_minute, flow_hour, flow_total TO arrester_app;
    END IF;
END
$$;
"""


def flow(name: str, table: str, time: str | None = None) -> migrations.CreateModel:
    """Return the creation of a table with sums, of runs in intervals of time or in total."""
    counts = ["micro_batches", "records_in", "records_out", "failed", "skipped", "held", "drained"]
    key = ["application", "pipeline", "checkpoint"]
    fields: list[tuple[str, models.Field[Any, Any]]] = [
        *((part, models.TextField()) for part in key),
        *((count, models.BigIntegerField()) for count in counts),
        ("durations", models.JSONField()),
        ("last_batch_at", models.DateTimeField(null=True)),
        ("backlog", models.BigIntegerField(null=True)),
        ("backlog_unit", models.TextField(null=True)),
        ("watermark", models.DateTimeField(null=True)),
        ("observed", models.BooleanField()),
        ("sequence", models.BigIntegerField()),
    ]
    indexes = []
    if time is not None:
        key += [time, "epoch"]
        fields += [("epoch", models.BigIntegerField()), (time, models.DateTimeField())]
        indexes = [models.Index(models.F(time), name=f"{table}_newest")]
    pk = models.CompositePrimaryKey(
        *key, blank=True, editable=False, primary_key=True, serialize=False
    )
    return migrations.CreateModel(
        name=name,
        fields=[*fields, ("pk", pk)],
        options={"db_table": table, "indexes": indexes} if indexes else {"db_table": table},
    )


class Migration(migrations.Migration):
    """The index takes some seconds for some million events."""

    dependencies = [
        ("controlplane", "0021_redrive_selection"),
    ]

    operations = [
        flow("FlowHour", "flow_hour", "hour"),
        flow("FlowMinute", "flow_minute", "minute"),
        flow("FlowTotal", "flow_total"),
        migrations.RunSQL(RUNS, "DROP INDEX event_of_run"),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]

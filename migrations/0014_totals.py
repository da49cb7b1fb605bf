"""Counts of all that failed by minute and hour, what tasks hold more or less by the hour, and
indexes of the tasks that hold anything and of what kinds of error groups there are."""

from __future__ import annotations

from django.db import migrations, models

# Counts are added up within a bigint, as the fold does it. What was held at which hour stands in
# the log alone: `manage.py rebuild` finds it there.
FILL = """
INSERT INTO {unit}_total (application, {unit}, count, sequence)
SELECT application, {unit}, least(sum(count), 9223372036854775807)::bigint, max(sequence)
FROM {unit}_count GROUP BY 1, 2
"""
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON minute_total, hour_total, held_change
            TO arrester_app;
    END IF;
END
$$;
"""


def _key(*names: str) -> models.CompositePrimaryKey:
    return models.CompositePrimaryKey(
        *names, blank=True, editable=False, primary_key=True, serialize=False
    )


def _total(name: str, unit: str) -> migrations.CreateModel:
    return migrations.CreateModel(
        name=name,
        fields=[
            ("pk", _key("application", unit)),
            ("application", models.TextField()),
            (unit, models.DateTimeField()),
            ("count", models.BigIntegerField()),
            ("sequence", models.BigIntegerField()),
        ],
        options={
            "db_table": f"{unit}_total",
            "indexes": [models.Index(models.F(unit), name=f"{unit}_total_newest")],
        },
    )


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0013_batches")]

    operations = [
        _total("MinuteTotal", "minute"),
        _total("HourTotal", "hour"),
        migrations.CreateModel(
            name="HeldChange",
            fields=[
                ("pk", _key("application", "hour", "pipeline", "checkpoint")),
                ("application", models.TextField()),
                ("hour", models.DateTimeField()),
                ("pipeline", models.TextField()),
                ("checkpoint", models.TextField()),
                ("change", models.BigIntegerField()),
                ("sequence", models.BigIntegerField()),
            ],
            options={
                "db_table": "held_change",
                "indexes": [models.Index(models.F("hour"), name="held_change_newest")],
            },
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                models.F("held"),
                models.F("digest"),
                condition=models.Q(("held__gt", 0)),
                name="task_holds",
            ),
        ),
        migrations.AddIndex(
            model_name="errorgroup",
            index=models.Index(
                models.F("status"),
                models.F("application"),
                models.F("stage"),
                condition=models.Q(("first_seen__isnull", False)),
                name="group_kinds",
            ),
        ),
        # Room in each page, so that counting on moves no row and touches no index.
        *[
            migrations.RunSQL(
                f"ALTER TABLE {table} SET (fillfactor = 70)",
                f"ALTER TABLE {table} RESET (fillfactor)",
            )
            for table in ("minute_total", "hour_total", "held_change")
        ],
        *[
            migrations.RunSQL(FILL.format(unit=unit), migrations.RunSQL.noop)
            for unit in ("minute", "hour")
        ],
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]

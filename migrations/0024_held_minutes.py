"""Add the changes of held records per minute."""

from __future__ import annotations

from django.db import migrations, models

# A server of its own may have no such role: then one role owns and uses the tables.
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON held_minute TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    """Changes before this migration stay known per hour."""

    dependencies = [
        ("controlplane", "0023_flow_limits"),
    ]

    operations = [
        migrations.CreateModel(
            name="HeldMinute",
            fields=[
                ("application", models.TextField()),
                ("minute", models.DateTimeField()),
                ("pipeline", models.TextField()),
                ("checkpoint", models.TextField()),
                ("change", models.BigIntegerField()),
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "minute",
                        "pipeline",
                        "checkpoint",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
            ],
            options={
                "db_table": "held_minute",
                "indexes": [models.Index(models.F("minute"), name="held_minute_newest")],
            },
        ),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]

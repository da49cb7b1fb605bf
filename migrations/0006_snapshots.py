"""States kept as they were: snapshots to find the past quickly, bases for the log to begin at."""

from __future__ import annotations

from django.db import migrations, models

#: What was appended before the column was there.
RECEIVED_AT = """
UPDATE stream SET received_at = (
    SELECT event.received_at FROM event
    WHERE event.application = stream.application AND event.sequence = stream.sequence
)
"""

GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, DELETE ON snapshot TO arrester_app;
        GRANT SELECT, INSERT ON base, base_state TO arrester_app;
    END IF;
END
$$;
"""


def kept(name: str, table: str) -> migrations.CreateModel:
    """Return the table of states at positions."""
    key = models.CompositePrimaryKey(
        "application",
        "kind",
        "key",
        "position",
        blank=True,
        editable=False,
        primary_key=True,
        serialize=False,
    )
    return migrations.CreateModel(
        name=name,
        fields=[
            ("pk", key),
            ("application", models.TextField()),
            ("kind", models.TextField()),
            ("key", models.TextField()),
            ("position", models.BigIntegerField()),
            ("state", models.TextField()),
        ],
        options={
            "db_table": table,
        },
    )


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0005_groups")]

    operations = [
        migrations.AddField(
            model_name="stream",
            name="received_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.RunSQL(RECEIVED_AT, migrations.RunSQL.noop),
        kept("Snapshot", "snapshot"),
        kept("BaseState", "base_state"),
        migrations.CreateModel(
            name="Base",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "position",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application", models.TextField()),
                ("position", models.BigIntegerField()),
                ("received_at", models.DateTimeField()),
                ("made_at", models.DateTimeField()),
            ],
            options={
                "db_table": "base",
            },
        ),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]

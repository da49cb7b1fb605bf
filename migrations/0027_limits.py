"""Limit the quarantine, and count what limits have dropped or refused."""

from __future__ import annotations

from django.db import migrations, models

# A server of its own may have no such role: then one role owns and uses the tables.
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON limit_reached TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    """What exceeds the limits is dropped when the next entry is added."""

    dependencies = [
        ("controlplane", "0026_fewer_columns"),
    ]

    operations = [
        migrations.AddField("quarantine", "cut_from", models.BigIntegerField(null=True)),
        migrations.CreateModel(
            name="LimitReached",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "limit",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application", models.TextField()),
                ("limit", models.TextField()),
                ("count", models.BigIntegerField()),
                ("first_at", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
            ],
            options={"db_table": "limit_reached"},
        ),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]

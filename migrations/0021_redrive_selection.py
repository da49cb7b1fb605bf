"""Add the table of the dead letters that are kept for a redrive."""

from __future__ import annotations

from django.db import migrations, models

# A server of its own may have no such role: then one role owns and uses the tables.
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, DELETE ON redrive_selection TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    """A row for each redrive in progress."""

    dependencies = [
        ("controlplane", "0020_dead_letter_outcome"),
    ]

    operations = [
        migrations.CreateModel(
            name="RedriveSelection",
            fields=[
                ("command", models.UUIDField(primary_key=True, serialize=False)),
                ("application", models.TextField()),
                ("kept_at", models.DateTimeField()),
                ("ids", models.BinaryField()),
                ("since", models.DateTimeField()),
                ("until", models.DateTimeField()),
            ],
            options={
                "db_table": "redrive_selection",
                "abstract": False,
            },
        ),
        migrations.RunSQL(GRANT),
    ]

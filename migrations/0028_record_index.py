"""Index failed records by their fields and words."""

from __future__ import annotations

from django.db import migrations, models

# A filter looks like random bytes: compression would only take time.
STORAGE = "ALTER TABLE record_block ALTER COLUMN filter SET STORAGE EXTERNAL"
# A server of its own may have no such role: then one role owns and uses the tables.
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON record_block, record_index TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    """The housekeeper indexes the log from its beginning afterwards."""

    dependencies = [
        ("controlplane", "0027_limits"),
    ]

    operations = [
        migrations.CreateModel(
            name="RecordBlock",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "stream",
                        "first",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("first", models.BigIntegerField()),
                ("last", models.BigIntegerField()),
                ("since", models.DateTimeField()),
                ("received_at", models.DateTimeField()),
                ("stream", models.IntegerField()),
                ("bits", models.IntegerField()),
                ("closed", models.BooleanField()),
                ("filter", models.BinaryField()),
            ],
            options={
                "db_table": "record_block",
                "indexes": [models.Index("received_at", name="record_block_newest")],
            },
        ),
        migrations.CreateModel(
            name="RecordIndex",
            fields=[
                ("stream", models.IntegerField(primary_key=True, serialize=False)),
                ("position", models.BigIntegerField()),
            ],
            options={"db_table": "record_index"},
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]

"""Group the blocks of the index of failed records."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models

# A filter looks like random bytes: compression would only take time.
STORAGE = "ALTER TABLE record_group ALTER COLUMN filters SET STORAGE EXTERNAL"
# A server of its own may have no such role: then one role owns and uses the tables.
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON record_group TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    """The housekeeper groups the present blocks afterwards."""

    dependencies = [
        ("controlplane", "0028_record_index"),
    ]

    operations = [
        migrations.RemoveIndex("RecordBlock", "record_block_newest"),
        migrations.CreateModel(
            name="RecordGroup",
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
                ("stream", models.IntegerField()),
                ("first", models.BigIntegerField()),
                ("last", models.BigIntegerField()),
                ("since", models.DateTimeField()),
                ("received_at", models.DateTimeField()),
                ("firsts", ArrayField(models.BigIntegerField())),
                ("lasts", ArrayField(models.BigIntegerField())),
                ("sinces", ArrayField(models.DateTimeField())),
                ("received_ats", ArrayField(models.DateTimeField())),
                ("filters", models.BinaryField()),
            ],
            options={"db_table": "record_group"},
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]

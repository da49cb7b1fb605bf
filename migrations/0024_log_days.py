"""What each day of a log has is known, so that pages leave out days that cannot have any of it."""

from __future__ import annotations

from django.db import migrations, models

# Nobody appends meanwhile: what is not known here, no page finds.
SO_FAR = """
LOCK TABLE stream IN SHARE MODE;
INSERT INTO log_day (application, day, first, oldest, newest)
SELECT application, day, first, oldest, newest FROM stream JOIN (
    SELECT stream, day, min(sequence) AS first, min(occurred_at) AS oldest,
        max(occurred_at) AS newest
    FROM event GROUP BY 1, 2
) AS of_day ON of_day.stream = stream.id;
"""
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON log_day TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0023_counted_aside")]

    operations = [
        migrations.CreateModel(
            name="LogDay",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "day",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application", models.TextField()),
                ("day", models.DateField()),
                ("first", models.BigIntegerField()),
                ("oldest", models.DateTimeField()),
                ("newest", models.DateTimeField()),
            ],
            options={"db_table": "log_day"},
        ),
        migrations.RunSQL(SO_FAR, migrations.RunSQL.noop),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]

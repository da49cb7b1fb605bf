"""What charts and lists are read from: counts per hour, and the cause that a task stands for."""

from __future__ import annotations

from django.db import migrations, models

# Counts are added up within a bigint, as the fold does it.
FILL_HOURS = """
INSERT INTO hour_count (application, hour, fingerprint, count, sequence)
SELECT application, date_trunc('hour', minute, 'UTC'), fingerprint,
    least(sum(count), 9223372036854775807)::bigint, max(sequence)
FROM minute_count GROUP BY 1, 2, 3
"""
# As text: PostgreSQL's json refuses an escaped NUL, and a message may have one.
FILL_CAUSES = """
UPDATE task SET fingerprint = substring(state from '"fingerprint":"([^"]+)"')
"""
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON hour_count TO arrester_app;
    END IF;
END
$$;
"""
# What changed a state, among the many events that only count.
TURNS = """
CREATE INDEX event_turns ON event (application, sequence) WHERE count IS NULL
    AND type NOT IN ('RetriesCounted', 'RecordsHeld', 'RecordsDeadLettered');
"""


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0003_grants")]

    operations = [
        migrations.CreateModel(
            name="HourCount",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "hour",
                        "fingerprint",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application", models.TextField()),
                ("hour", models.DateTimeField()),
                ("fingerprint", models.TextField()),
                ("count", models.BigIntegerField()),
                ("sequence", models.BigIntegerField()),
            ],
            options={
                "db_table": "hour_count",
                "indexes": [models.Index(models.F("hour"), name="hour_newest")],
            },
        ),
        migrations.AddIndex(
            model_name="minutecount",
            index=models.Index(models.F("minute"), name="minute_newest"),
        ),
        migrations.AddField(
            model_name="task", name="fingerprint", field=models.TextField(null=True)
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                models.F("application"),
                models.F("fingerprint"),
                condition=models.Q(("status", "RUNNING"), _negated=True),
                name="task_stopped",
            ),
        ),
        migrations.RunSQL(
            "ALTER TABLE hour_count SET (fillfactor = 70)",
            "ALTER TABLE hour_count RESET (fillfactor)",
        ),
        migrations.RunSQL(FILL_HOURS, migrations.RunSQL.noop),
        migrations.RunSQL(FILL_CAUSES, migrations.RunSQL.noop),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
        migrations.RunSQL(TURNS, "DROP INDEX event_turns"),
    ]

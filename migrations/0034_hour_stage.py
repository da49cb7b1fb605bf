"""Add the counts per hour, pipeline and stage, with the sums of those per minute."""

from __future__ import annotations

from django.db import migrations, models

FILL = f"""
INSERT INTO hour_stage (application, hour, pipeline, stage, count, sequence)
SELECT application, date_trunc('hour', minute, 'UTC'), pipeline, stage,
    least(sum(count), {2**63 - 1})::bigint, max(sequence)
FROM minute_count GROUP BY 1, 2, 3, 4
"""
# A server of its own may have no such role: then one role owns and uses the tables.
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON hour_stage TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0033_act_requests")]

    operations = [
        migrations.CreateModel(
            name="HourStage",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "hour",
                        "pipeline",
                        "stage",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application", models.TextField()),
                ("hour", models.DateTimeField()),
                ("pipeline", models.TextField()),
                ("stage", models.TextField()),
                ("count", models.BigIntegerField()),
                ("sequence", models.BigIntegerField()),
            ],
            options={"db_table": "hour_stage"},
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]

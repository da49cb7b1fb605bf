"""Add the counters of failures of each pipeline, with what its tasks have counted so far."""

from __future__ import annotations

from django.db import migrations, models

COUNTS = (
    *("record_failures", "records_skipped", "total_retries", "failures_logged"),
    *("dlq_records_produced", "dlq_produce_failures"),
)
_MOST = 2**63 - 1
_SUMS = ", ".join(
    f"greatest(least(coalesce(sum({name}), 0), {_MOST}), -{_MOST})::bigint" for name in COUNTS
)
_COLUMNS = ", ".join(f"{name} numeric" for name in COUNTS)
# Only the counters are parsed: a name or message may have an escaped NUL, which PostgreSQL refuses.
FILL = f"""
INSERT INTO failure_total (application, pipeline, failed, {", ".join(COUNTS)},
    last_failure_timestamp)
SELECT application, pipeline, least(sum(failed), {_MOST})::bigint, {_SUMS},
    max(last_failure_timestamp)
FROM task LEFT JOIN LATERAL json_to_record(
    ('{{' || substring(state FROM '"counters":\\{{[^{{}}]*\\}}') || '}}')::json -> 'counters'
) AS counters ({_COLUMNS}, last_failure_timestamp timestamptz) ON true
GROUP BY application, pipeline
"""
# A server of its own may have no such role: then one role owns and uses the tables.
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON failure_total TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0030_owners")]

    operations = [
        migrations.CreateModel(
            name="FailureTotal",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "pipeline",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application", models.TextField()),
                ("pipeline", models.TextField()),
                ("failed", models.BigIntegerField()),
                *((name, models.BigIntegerField()) for name in COUNTS),
                ("last_failure_timestamp", models.DateTimeField(null=True)),
            ],
            options={"db_table": "failure_total"},
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]

"""Create the table of gaps: events that a log lacks after a restore of an older dump."""

from __future__ import annotations

from django.db import migrations, models

# A server of its own may have no such role: then one role owns and uses the tables.
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT ON log_gap TO arrester_app;
        GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("controlplane", "0010_single_sign_on"),
    ]

    operations = [
        migrations.CreateModel(
            name="LogGap",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("application", models.TextField()),
                ("first", models.BigIntegerField()),
                ("last", models.BigIntegerField()),
                ("noticed_at", models.DateTimeField()),
            ],
            options={"db_table": "log_gap"},
        ),
        migrations.AddConstraint(
            model_name="loggap",
            constraint=models.UniqueConstraint(
                fields=("application", "first", "last"), name="log_gap_noticed_once"
            ),
        ),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]

"""Add the requests of acts, by which a repeated id with another body is refused."""

from __future__ import annotations

from django.db import migrations, models

# A server of its own may have no such role: then one role owns and uses the tables.
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON act_request TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0032_event_subscriptions")]

    operations = [
        migrations.CreateModel(
            name="ActRequest",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("digest", models.BinaryField()),
                ("received_at", models.DateTimeField()),
            ],
            options={
                "db_table": "act_request",
                "indexes": [models.Index(models.F("received_at"), name="act_request_oldest")],
            },
        ),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]

"""Add the webhooks that receive events."""

from __future__ import annotations

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

# A server of its own may have no such role: then one role owns and uses the tables.
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON event_subscription TO arrester_app;
        GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0031_failure_totals")]

    operations = [
        migrations.CreateModel(
            name="EventSubscription",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "event_types",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), size=None
                    ),
                ),
                ("application", models.TextField(default="")),
                ("cursor", models.TextField()),
                ("created_at", models.DateTimeField()),
                ("delivered_at", models.DateTimeField(null=True)),
                (
                    "channel",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="subscription",
                        to="controlplane.alertchannel",
                    ),
                ),
            ],
            options={"db_table": "event_subscription"},
        ),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]

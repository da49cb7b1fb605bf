"""Create the table of agents' credentials."""

from __future__ import annotations

from django.db import migrations, models

# A server of its own may have no such role: then one role owns and uses the tables.
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, DELETE ON agent_credential TO arrester_app;
        GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("controlplane", "0011_log_gaps"),
    ]

    operations = [
        migrations.CreateModel(
            name="AgentCredential",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("application", models.TextField()),
                ("password_sha256", models.TextField()),
                ("created_at", models.DateTimeField()),
                ("actor", models.TextField()),
            ],
            options={
                "db_table": "agent_credential",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("application", "password_sha256"), name="agent_credential_once"
                    )
                ],
            },
        ),
        migrations.RunSQL(GRANT),
    ]

"""Add the columns of the audit's chain, and the table of its periodic check."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

# A server of its own may have no such role: then one role owns and uses the tables.
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, UPDATE ON audit_check TO arrester_app;
    END IF;
END
$$;
"""


def _column(name: str, field: models.Field[Any, Any]) -> migrations.AddField:
    return migrations.AddField(model_name="auditentry", name=name, field=field)


class Migration(migrations.Migration):
    dependencies = [
        ("controlplane", "0012_agent_credentials"),
    ]

    operations = [
        _column("application", models.TextField(null=True)),
        _column("sequence", models.BigIntegerField(null=True)),
        _column("key", models.TextField(null=True)),
        _column("previous", models.BinaryField(null=True)),
        _column("mac", models.BinaryField(null=True)),
        migrations.CreateModel(
            name="AuditCheck",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("number", models.BigIntegerField()),
                ("mac", models.BinaryField()),
                ("at", models.DateTimeField()),
                ("began_at", models.DateTimeField()),
                ("problem", models.TextField()),
                ("unverified", models.BigIntegerField(default=0)),
            ],
            options={"db_table": "audit_check"},
        ),
        migrations.RunSQL(GRANT),
    ]

"""Create the table of roles on single applications, and the applications of REST tokens."""

from __future__ import annotations

import django.contrib.postgres.fields
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

# A server of its own may have no such role: then one role owns and uses the tables.
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON application_role TO arrester_app;
        GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("controlplane", "0016_dead_letters"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="ApplicationRole",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("application", models.TextField()),
                ("role", models.TextField()),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="application_roles",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "application_role",
                "constraints": [
                    models.UniqueConstraint(
                        models.F("user"), models.F("application"), name="application_role_once"
                    )
                ],
            },
        ),
        migrations.AddField(
            model_name="resttoken",
            name="applications",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.TextField(), null=True, size=None
            ),
        ),
        migrations.RunSQL(GRANT),
    ]

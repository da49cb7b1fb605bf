"""Create the table of REST tokens, take over the tokens of 0.2.0 as hashes, and drop those."""

from __future__ import annotations

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

# A token of 0.2.0 works for a further year: its account could do everything with it.
TAKE_OVER = """
DO $$
BEGIN
    IF to_regclass('authtoken_token') IS NOT NULL THEN
        INSERT INTO rest_token (user_id, name, digest, scope, created_at, expires_at)
            SELECT user_id, 'from 0.2.0', encode(sha256(convert_to(key, 'UTF8')), 'hex'),
                'operate', created, now() + interval '365 days'
            FROM authtoken_token;
        DROP TABLE authtoken_token;
    END IF;
END
$$;
"""
# A server of its own may have no such role: then one role owns and uses the tables.
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON rest_token TO arrester_app;
        GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("controlplane", "0008_audit_entries"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="RestToken",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.TextField()),
                ("digest", models.TextField(unique=True)),
                ("scope", models.TextField()),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField(null=True)),
                ("last_used_at", models.DateTimeField(null=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="rest_tokens",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "rest_token",
                "constraints": [
                    models.UniqueConstraint(
                        models.F("user"), models.F("name"), name="rest_token_name"
                    )
                ],
            },
        ),
        migrations.RunSQL(TAKE_OVER),
        migrations.RunSQL(GRANT),
    ]

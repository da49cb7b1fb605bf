"""Create the tables of the service itself: sightings, account changes, retention refusals."""

from __future__ import annotations

from django.db import migrations, models

APPEND_ONLY = """
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON account_change
    FOR EACH STATEMENT EXECUTE FUNCTION arrester_refuse_change();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("controlplane", "0002_derived_views"),
    ]

    operations = [
        migrations.CreateModel(
            name="Sighting",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
            ],
            options={
                "db_table": "sighting",
            },
        ),
        migrations.CreateModel(
            name="AccountChange",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                ("actor", models.TextField()),
                ("account", models.TextField()),
                ("act", models.TextField()),
                ("detail", models.TextField()),
            ],
            options={
                "db_table": "account_change",
                "indexes": [
                    models.Index(models.F("at"), models.F("id"), name="account_change_newest")
                ],
            },
        ),
        migrations.CreateModel(
            name="RetentionRefusal",
            fields=[
                ("application", models.TextField(primary_key=True, serialize=False)),
                ("since", models.DateTimeField()),
                ("reason", models.TextField()),
            ],
            options={
                "db_table": "retention_refusal",
            },
        ),
        migrations.RunSQL(APPEND_ONLY),
    ]

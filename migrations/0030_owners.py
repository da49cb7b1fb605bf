"""Add owner rules, saved filters and own channels of accounts; index assignments of error groups.

The index is made anew: PostgreSQL reads each row of `event` once, half a second for each million.
"""

from __future__ import annotations

import hashlib

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


def key(name: str) -> int:
    """Return the number of an event type, as `store.column_values` computes it."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], signed=True)


BEFORE = (
    *("ErrorGroupResolved", "ErrorGroupReopened", "ErrorGroupMuted", "ErrorGroupUnmuted"),
    "NoteAdded",
)


def index(*names: str) -> str:
    types = ", ".join(str(key(name)) for name in names)
    return (
        "DROP INDEX event_acts_on_group;"
        f" CREATE INDEX event_acts_on_group ON event (cause, sequence) WHERE type IN ({types})"
    )


# A server of its own may have no such role: then one role owns and uses the tables.
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON owner_rule, saved_filter TO arrester_app;
        GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("controlplane", "0029_record_groups"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="OwnerRule",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("place", models.IntegerField()),
                ("application", models.TextField(default="")),
                ("pipeline", models.TextField(default="")),
                ("stage", models.TextField(default="")),
                ("owner", models.TextField()),
            ],
            options={"db_table": "owner_rule"},
        ),
        migrations.CreateModel(
            name="SavedFilter",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("page", models.TextField()),
                ("name", models.TextField()),
                ("query", models.TextField()),
                ("application", models.TextField(default="")),
                ("shared", models.BooleanField(default=False)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="saved_filters",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "saved_filter",
                "constraints": [
                    models.UniqueConstraint(
                        models.F("user"),
                        models.F("page"),
                        models.F("name"),
                        name="saved_filter_once",
                    )
                ],
            },
        ),
        migrations.AddField(
            model_name="alertchannel",
            name="user",
            field=models.OneToOneField(
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="alert_channel",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AlterField(
            model_name="alertrule",
            name="channel",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                to="controlplane.alertchannel",
            ),
        ),
        migrations.RunSQL(index(*BEFORE, "ErrorGroupAssigned"), index(*BEFORE)),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]

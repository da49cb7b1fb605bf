"""Create the index of dead letters, and their totals."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

# A server of its own may have no such role: then one role owns and uses the tables.
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON dead_letter, dead_letter_total, shadow_dead_letter,
            shadow_dead_letter_total TO arrester_app;
    END IF;
END
$$;
"""


# A rebuild derives them anew: a crash may empty them.
UNLOGGED = """
ALTER TABLE shadow_dead_letter SET UNLOGGED;
ALTER TABLE shadow_dead_letter_total SET UNLOGGED;
"""


def key(*names: str) -> tuple[str, models.CompositePrimaryKey]:
    """Return the field of a key."""
    return "pk", models.CompositePrimaryKey(
        *names, blank=True, editable=False, primary_key=True, serialize=False
    )


def dead_letter() -> list[tuple[str, models.Field[Any, Any]]]:
    """Return the fields of a dead letter."""
    return [
        key("stream", "id"),
        ("sequence", models.BigIntegerField()),
        ("pipeline", models.BigIntegerField()),
        ("cause", models.BigIntegerField()),
        ("position", models.BigIntegerField(null=True)),
        ("occurred_at", models.DateTimeField()),
        ("stream", models.IntegerField()),
        ("number", models.IntegerField()),
        ("size", models.IntegerField(null=True)),
        ("id", models.UUIDField()),
        ("task", models.UUIDField()),
    ]


def total() -> list[tuple[str, models.Field[Any, Any]]]:
    """Return the fields of a total."""
    return [
        key("stream", "task", "cause"),
        ("stream", models.IntegerField()),
        ("task", models.UUIDField()),
        ("cause", models.BigIntegerField()),
        ("pipeline", models.BigIntegerField()),
        ("fingerprint", models.TextField(null=True)),
        ("count", models.BigIntegerField()),
    ]


class Migration(migrations.Migration):
    dependencies = [
        ("controlplane", "0015_superusers"),
    ]

    operations = [
        migrations.CreateModel(
            name="DeadLetter",
            fields=dead_letter(),
            options={
                "db_table": "dead_letter",
                "indexes": [
                    models.Index(
                        *("pipeline", "cause", "occurred_at", "sequence", "number"),
                        name="dead_letter_of_cause",
                    ),
                    models.Index(
                        *("task", "cause", "occurred_at", "sequence", "number"),
                        name="dead_letter_of_task",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="DeadLetterTotal", fields=total(), options={"db_table": "dead_letter_total"}
        ),
        migrations.CreateModel(
            name="ShadowDeadLetter",
            fields=dead_letter(),
            options={"db_table": "shadow_dead_letter"},
        ),
        migrations.CreateModel(
            name="ShadowDeadLetterTotal",
            fields=total(),
            options={"db_table": "shadow_dead_letter_total"},
        ),
        migrations.RunSQL(UNLOGGED, migrations.RunSQL.noop),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]

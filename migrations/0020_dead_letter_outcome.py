"""Add the redrive that took a dead letter last, their number, and the first event about it.

Lists read each status from an index.
"""

from __future__ import annotations

from django.db import migrations, models

TABLES = ("deadletter", "shadowdeadletter")


class Migration(migrations.Migration):
    """Of dead letters so far, only the newest event is known."""

    dependencies = [
        ("controlplane", "0019_unread_index"),
    ]

    operations = [
        *(
            migrations.AddField(model_name=table, name=name, field=field)
            for table in TABLES
            for name, field in (
                ("first_sequence", models.BigIntegerField(db_default=0, default=0)),
                ("redrive", models.UUIDField(null=True)),
                ("redrives", models.SmallIntegerField(db_default=0, default=0)),
            )
        ),
        migrations.RunSQL(
            "UPDATE dead_letter SET first_sequence = sequence", migrations.RunSQL.noop
        ),
        migrations.RemoveIndex(model_name="deadletter", name="dead_letter_of_cause"),
        migrations.RemoveIndex(model_name="deadletter", name="dead_letter_of_task"),
        *(
            migrations.AddIndex(
                model_name="deadletter",
                index=models.Index(
                    *(column, "cause", "status", "occurred_at", "sequence", "number"),
                    name=name,
                ),
            )
            for column, name in (
                ("pipeline", "dead_letter_of_pipeline"),
                ("task", "dead_letter_of_task_cause"),
            )
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(
                "redrive",
                "status",
                condition=models.Q(redrive__isnull=False),
                name="dead_letter_of_redrive",
            ),
        ),
    ]

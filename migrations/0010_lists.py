"""Indexes for what changed a task's state, and for the newest command of each application."""

from __future__ import annotations

from django.db import migrations, models

TURNS = """
CREATE INDEX event_turns_of_task ON event (task, sequence) WHERE task IS NOT NULL
    AND count IS NULL AND type NOT IN ('RetriesCounted', 'RecordsHeld', 'RecordsDeadLettered');
"""


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0009_erasure")]

    operations = [
        migrations.RunSQL(TURNS, "DROP INDEX event_turns_of_task"),
        migrations.AddIndex(
            model_name="command",
            index=models.Index(
                models.F("application"),
                models.F("issued_at"),
                models.F("id"),
                name="command_of_application",
            ),
        ),
    ]

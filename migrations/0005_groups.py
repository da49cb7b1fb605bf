"""What people do: with error groups, and who did it; and an index for the list of dead letters."""

from __future__ import annotations

from django.db import migrations, models

# Of what was appended before, nobody can say quickly who did it: those rows keep no actor.
EVENT = """
ALTER TABLE event ADD COLUMN actor text;
CREATE INDEX event_of_people ON event (occurred_at, application, sequence)
    WHERE actor IS NOT NULL;
CREATE INDEX event_of_group_people ON event (application, fingerprint, sequence)
    WHERE count IS NULL AND actor IS NOT NULL AND fingerprint IS NOT NULL;
CREATE INDEX event_dead_letters ON event (occurred_at, application, sequence)
    WHERE type = 'RecordsDeadLettered';
"""
UNDO = """
DROP INDEX event_dead_letters;
DROP INDEX event_of_group_people;
DROP INDEX event_of_people;
ALTER TABLE event DROP COLUMN actor;
"""
FIRST_SEEN = """
UPDATE error_group
    SET first_seen = substring(state from '"first_seen":"([^"]*)"')::timestamptz
"""


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0004_hours")]

    operations = [
        migrations.RunSQL(
            EVENT,
            UNDO,
            state_operations=[
                migrations.AddField("event", "actor", models.TextField(null=True)),
            ],
        ),
        migrations.AddField(
            "errorgroup", "status", models.TextField(default="UNRESOLVED"), preserve_default=True
        ),
        migrations.AddField("errorgroup", "first_seen", models.DateTimeField(null=True)),
        migrations.RunSQL(FIRST_SEEN, migrations.RunSQL.noop),
        migrations.AddIndex(
            "errorgroup",
            models.Index(
                models.F("application"), condition=models.Q(("status", "MUTED")), name="group_muted"
            ),
        ),
    ]

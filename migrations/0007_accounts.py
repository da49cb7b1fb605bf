"""Who changed whose account, which only grows; and the index of what is done with error groups."""

from __future__ import annotations

from django.db import migrations, models

ACTS = """
DROP INDEX event_of_group_people;
CREATE INDEX event_acts_on_group ON event (application, fingerprint, sequence)
    WHERE type IN ('ErrorGroupResolved', 'ErrorGroupReopened', 'ErrorGroupMuted',
        'ErrorGroupUnmuted', 'NoteAdded');
"""
NO_ACTS = """
DROP INDEX event_acts_on_group;
CREATE INDEX event_of_group_people ON event (application, fingerprint, sequence)
    WHERE count IS NULL AND actor IS NOT NULL AND fingerprint IS NOT NULL;
"""
GUARD = """
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON account_change
    FOR EACH STATEMENT EXECUTE FUNCTION arrester_refuse_change();
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT ON account_change TO arrester_app;
        GRANT USAGE, SELECT ON SEQUENCE account_change_id_seq TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0006_snapshots")]

    operations = [
        migrations.RunSQL(ACTS, NO_ACTS),
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
        migrations.RunSQL(GUARD, migrations.RunSQL.noop),
    ]

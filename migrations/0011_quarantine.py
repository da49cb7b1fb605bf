"""What is kept aside only because its id is too old is told apart; what nobody wants is let go."""

from __future__ import annotations

from django.db import migrations, models

TOO_OLD = """
UPDATE quarantine SET too_old = true
WHERE index IS NULL AND reason LIKE 'a batch of %, older than the replay horizon: %'
"""


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0010_lists")]

    operations = [
        migrations.AddField(
            model_name="quarantine",
            name="too_old",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name="quarantine",
            name="dismissed_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.RunSQL(TOO_OLD, migrations.RunSQL.noop),
    ]

"""Let the key of the counts per hour begin with the error group.

The counts of one error group are then found without those of the others. The model is the same: the
order of the columns of a key is none of its concerns.
"""

from __future__ import annotations

from django.db import migrations

_KEY = "ALTER TABLE hour_count DROP CONSTRAINT hour_count_pkey, ADD PRIMARY KEY ({})"


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0034_hour_stage")]

    operations = [
        migrations.RunSQL(
            _KEY.format("application, fingerprint, hour"),
            _KEY.format("application, hour, fingerprint"),
        )
    ]

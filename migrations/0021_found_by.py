"""Indexes: of snapshots by position, since a rebuild compares each with the log and retention drops
them; of error groups by stage, since a page of a rare one first asks which they are."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0020_old_buckets")]

    operations = [
        migrations.AddIndex(
            model_name="snapshot",
            index=models.Index("application", "position", name="snapshot_position"),
        ),
        migrations.AddIndex(
            model_name="errorgroup",
            index=models.Index("stage", "application", name="group_stage"),
        ),
    ]

"""An index of snapshots by position: a rebuild compares each with the log, retention drops them."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0020_old_buckets")]

    operations = [
        migrations.AddIndex(
            model_name="snapshot",
            index=models.Index("application", "position", name="snapshot_position"),
        ),
    ]

"""Add limits of what flows through pipelines to those of alerts."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """Stored limits of an application stay off; only the default of a new row may differ."""

    dependencies = [
        ("controlplane", "0022_flow"),
    ]

    operations = [
        migrations.AddField(
            model_name="alertlimits", name=name, field=models.IntegerField(null=True)
        )
        for name in ("no_batch_minutes", "batch_minutes", "backlog_minutes", "failed_percent")
    ]

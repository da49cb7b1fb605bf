"""An index of what failed often within an hour: the greatest causes are found by it."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0015_newest_tasks")]

    operations = [
        migrations.AddIndex(
            model_name="hourcount",
            index=models.Index(
                "hour", "count", name="hour_greatest", condition=models.Q(count__gte=20)
            ),
        ),
    ]

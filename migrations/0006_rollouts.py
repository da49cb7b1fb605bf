"""Add the rollout that issued a command."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("controlplane", "0005_grants"),
    ]

    operations = [
        migrations.AddField(
            model_name="command",
            name="part_of",
            field=models.UUIDField(null=True),
        ),
        migrations.AddIndex(
            model_name="command",
            index=models.Index(
                models.F("part_of"),
                condition=models.Q(("part_of__isnull", False)),
                name="command_of_rollout",
            ),
        ),
    ]

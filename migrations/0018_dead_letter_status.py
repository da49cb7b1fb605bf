"""Add what became of each dead letter, and the totals of those that wait."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """Dead letters so far are WAITING."""

    dependencies = [
        ("controlplane", "0017_application_roles"),
    ]

    operations = [
        *(
            migrations.AddField(
                model_name=name,
                name="status",
                field=models.SmallIntegerField(db_default=0, default=0),
            )
            for name in ("deadletter", "shadowdeadletter")
        ),
        *(
            migrations.AddField(
                model_name=name,
                name="waiting",
                field=models.BigIntegerField(db_default=0, default=0),
            )
            for name in ("deadlettertotal", "shadowdeadlettertotal")
        ),
        migrations.RunSQL("UPDATE dead_letter_total SET waiting = count", migrations.RunSQL.noop),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(
                "stream",
                "task",
                condition=models.Q(status=1),
                name="dead_letter_redriven",
            ),
        ),
    ]

"""Indexes for the counts of what is kept aside: each page and each scrape asks for them."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0022_cleaned_up_behind")]

    operations = [
        migrations.AddIndex(
            model_name="quarantine",
            index=models.Index(
                "application",
                name="not_understood",
                condition=models.Q(requeued_at=None, dismissed_at=None, too_old=False),
            ),
        ),
        migrations.AddIndex(
            model_name="quarantine",
            index=models.Index(
                "received_at",
                "application",
                name="too_old_lately",
                condition=models.Q(requeued_at=None, dismissed_at=None, too_old=True),
            ),
        ),
    ]

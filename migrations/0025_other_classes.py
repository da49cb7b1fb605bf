"""Which classes an error group's failures came in, and indexes to find it by: a page of one class
looked into all causes with a condition, any of which may have come in it.

Of those that there are already the log is not asked: they may have come in any.
"""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import migrations, models

NOT_KNOWN = """
UPDATE error_group SET other_classes = ARRAY['*'] WHERE state NOT LIKE '%"condition":null%'
"""


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0024_log_days")]

    operations = [
        migrations.AddField(
            model_name="errorgroup",
            name="other_classes",
            field=ArrayField(models.TextField(), null=True),
        ),
        migrations.RunSQL(NOT_KNOWN, migrations.RunSQL.noop),
        migrations.AddIndex(
            model_name="errorgroup",
            index=models.Index("exception_class", "application", name="group_class"),
        ),
        migrations.AddIndex(
            model_name="errorgroup",
            index=GinIndex(
                "other_classes",
                condition=models.Q(other_classes__isnull=False),
                fastupdate=False,
                name="group_other_classes",
            ),
        ),
    ]

"""Drop an index of the log that nothing reads any more: dead letters have their own table."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    """Partitions lose their part of the index, too."""

    dependencies = [
        ("controlplane", "0018_dead_letter_status"),
    ]

    operations = [
        migrations.RunSQL("DROP INDEX event_dead_letters", migrations.RunSQL.noop),
    ]

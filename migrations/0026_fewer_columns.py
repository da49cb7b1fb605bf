"""Drop columns that nothing reads: whether a message is critical, whether flow is observed."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    """Takes no time that depends on the size."""

    dependencies = [
        ("controlplane", "0025_packed_durations"),
    ]

    operations = [
        migrations.RemoveField("alertmessage", "critical"),
        migrations.RemoveField("flowhour", "observed"),
        migrations.RemoveField("flowminute", "observed"),
        migrations.RemoveField("flowtotal", "observed"),
    ]

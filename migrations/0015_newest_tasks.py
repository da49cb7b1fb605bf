"""An index in the order of the list of tasks: those whose state changed last come first."""

from __future__ import annotations

from django.db import migrations

# Written as the list's statement has it: a task that never changed its state sorts last.
NEWEST = "CREATE INDEX task_newest ON task ((coalesce(since, to_timestamp(0))), digest)"


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0014_totals")]

    operations = [migrations.RunSQL(NEWEST, "DROP INDEX task_newest")]

"""Store histograms of durations as arrays of numbers, which need a third of the space."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models

_TABLES = ("flow_minute", "flow_hour", "flow_total")
# See `domain.durations.packed`; a later change of it needs a migration of its own.
_PACK = """
UPDATE {table} SET packed = ARRAY(
    SELECT least(value::numeric, 2^50)::bigint * 1024 + 128 * (array_position(
        ARRAY['total', 'source', 'evaluate', 'decide', 'store', 'write'], split_part(key, ':', 1)
    ) - 1) + split_part(key, ':', 2)::bigint
    FROM jsonb_each_text(durations)
    WHERE key ~ '^(total|source|evaluate|decide|store|write):[0-9]{{1,2}}$' OR
        key ~ '^(total|source|evaluate|decide|store|write):1[01][0-9]$' OR
        key ~ '^(total|source|evaluate|decide|store|write):12[0-6]$'
)
"""


class Migration(migrations.Migration):
    """Rewrites the flow: some seconds for a million minutes."""

    dependencies = [
        ("controlplane", "0024_held_minutes"),
    ]

    operations = [
        *(
            operation
            for table, model in zip(_TABLES, ("FlowMinute", "FlowHour", "FlowTotal"), strict=True)
            for operation in (
                migrations.AddField(
                    model, "packed", ArrayField(models.BigIntegerField(), default=list)
                ),
                migrations.RunSQL(_PACK.format(table=table)),
                migrations.RemoveField(model, "durations"),
                migrations.RenameField(model, "packed", "durations"),
                migrations.AlterField(model, "durations", ArrayField(models.BigIntegerField())),
            )
        ),
    ]

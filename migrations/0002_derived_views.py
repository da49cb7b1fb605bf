"""Create the views: rows derived from the log, which a rebuild can derive again."""

from __future__ import annotations

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
from django.db import migrations, models

TO_TEN_SECONDS = "date_bin('10 seconds', %(expressions)s, 'epoch'::timestamptz)"
STEPS = ",".join(str(first * 10**zeros) for zeros in range(1, 10) for first in (2, 5, 10))
STEP = f"width_bucket(%(expressions)s, '{{{STEPS}}}'::bigint[])"
# Leave space in each page, so that an update of columns without an index stays in its page (HOT).
FILLFACTOR = "".join(
    f"ALTER TABLE {table} SET (fillfactor = 70);\n"
    for table in (
        *("task", "error_group", "minute_count", "hour_count"),
        *("minute_total", "hour_total", "held_change"),
    )
)
# The expression is the one of the task list's ORDER BY.
TASK_NEWEST = "CREATE INDEX task_newest ON task ((coalesce(since, to_timestamp(0))), digest)"


class Migration(migrations.Migration):
    dependencies = [
        ("controlplane", "0001_event_log"),
    ]

    operations = [
        migrations.CreateModel(
            name="Application",
            fields=[
                ("state", models.TextField()),
                ("sequence", models.BigIntegerField()),
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("status", models.TextField()),
            ],
            options={
                "db_table": "application",
            },
        ),
        migrations.CreateModel(
            name="Instance",
            fields=[
                ("state", models.TextField()),
                ("sequence", models.BigIntegerField()),
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application", models.TextField()),
                ("id", models.UUIDField()),
                ("status", models.TextField()),
                ("lost", models.BooleanField()),
                ("started_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "instance",
            },
        ),
        migrations.CreateModel(
            name="Thread",
            fields=[
                ("state", models.TextField()),
                ("sequence", models.BigIntegerField()),
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "pipeline",
                        "checkpoint",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application", models.TextField()),
                ("pipeline", models.TextField()),
                ("checkpoint", models.TextField()),
                ("epoch", models.BigIntegerField()),
                ("status", models.TextField()),
                ("since", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "thread",
            },
        ),
        migrations.CreateModel(
            name="Task",
            fields=[
                ("state", models.TextField()),
                ("sequence", models.BigIntegerField()),
                ("digest", models.UUIDField(primary_key=True, serialize=False)),
                ("application", models.TextField()),
                ("pipeline", models.TextField()),
                ("checkpoint", models.TextField()),
                ("key", models.TextField(null=True)),
                ("status", models.TextField()),
                ("since", models.DateTimeField(null=True)),
                ("failed", models.BigIntegerField()),
                ("held", models.BigIntegerField()),
                ("fingerprint", models.TextField(null=True)),
            ],
            options={
                "db_table": "task",
                "indexes": [
                    models.Index(
                        models.F("application"),
                        models.F("pipeline"),
                        models.F("checkpoint"),
                        models.F("status"),
                        name="task_of_line",
                    ),
                    models.Index(
                        models.F("application"),
                        models.F("fingerprint"),
                        condition=models.Q(("status", "RUNNING"), _negated=True),
                        name="task_stopped",
                    ),
                    models.Index(
                        models.F("held"),
                        models.F("digest"),
                        condition=models.Q(("held__gt", 0)),
                        name="task_holds",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Command",
            fields=[
                ("state", models.TextField()),
                ("sequence", models.BigIntegerField()),
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application", models.TextField()),
                ("id", models.UUIDField()),
                ("kind", models.TextField()),
                ("actor", models.TextField()),
                ("task", models.UUIDField(null=True)),
                ("status", models.TextField()),
                ("open", models.BooleanField()),
                ("issued_at", models.DateTimeField()),
            ],
            options={
                "db_table": "command",
                "indexes": [
                    models.Index(models.F("id"), name="command_by_id"),
                    models.Index(models.F("issued_at"), models.F("id"), name="command_newest"),
                    models.Index(models.F("task"), models.F("issued_at"), name="command_of_task"),
                    models.Index(
                        models.F("application"),
                        models.F("issued_at"),
                        models.F("id"),
                        name="command_of_application",
                    ),
                    models.Index(
                        models.F("application"),
                        condition=models.Q(("open", True)),
                        name="command_open",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ErrorGroup",
            fields=[
                ("state", models.TextField()),
                ("sequence", models.BigIntegerField()),
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "fingerprint",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application", models.TextField()),
                ("fingerprint", models.TextField()),
                ("stage", models.TextField()),
                ("exception_class", models.TextField()),
                (
                    "other_classes",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), null=True, size=None
                    ),
                ),
                ("pipeline", models.TextField(null=True)),
                ("status", models.TextField(default="UNRESOLVED")),
                ("count", models.BigIntegerField()),
                ("first_seen", models.DateTimeField(null=True)),
                ("last_seen", models.DateTimeField()),
                (
                    "seen_about",
                    models.GeneratedField(
                        db_persist=True,
                        expression=models.Func(
                            "last_seen",
                            template=TO_TEN_SECONDS,
                        ),
                        output_field=models.DateTimeField(),
                    ),
                ),
            ],
            options={
                "db_table": "error_group",
                "indexes": [
                    models.Index(
                        models.F("application"),
                        condition=models.Q(("status", "MUTED")),
                        name="group_muted",
                    ),
                    models.Index(models.F("seen_about"), name="group_newest"),
                    models.Index(models.F("stage"), models.F("application"), name="group_stage"),
                    models.Index(
                        models.F("exception_class"), models.F("application"), name="group_class"
                    ),
                    django.contrib.postgres.indexes.GinIndex(
                        models.F("other_classes"),
                        condition=models.Q(("other_classes__isnull", False)),
                        fastupdate=False,
                        name="group_other_classes",
                    ),
                    models.Index(
                        models.F("status"),
                        models.F("application"),
                        models.F("stage"),
                        condition=models.Q(("first_seen__isnull", False)),
                        name="group_kinds",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ShadowRow",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "view",
                        "key",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application", models.TextField()),
                ("view", models.TextField()),
                ("key", models.TextField()),
                ("row", models.TextField()),
            ],
            options={
                "db_table": "shadow_row",
            },
        ),
        migrations.CreateModel(
            name="MinuteCount",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "minute",
                        "pipeline",
                        "stage",
                        "fingerprint",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application", models.TextField()),
                ("minute", models.DateTimeField()),
                ("pipeline", models.TextField()),
                ("stage", models.TextField()),
                ("fingerprint", models.TextField()),
                ("count", models.BigIntegerField()),
                ("sequence", models.BigIntegerField()),
            ],
            options={
                "db_table": "minute_count",
                "indexes": [models.Index(models.F("minute"), name="minute_newest")],
            },
        ),
        migrations.CreateModel(
            name="HourCount",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "hour",
                        "fingerprint",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application", models.TextField()),
                ("hour", models.DateTimeField()),
                ("fingerprint", models.TextField()),
                ("count", models.BigIntegerField()),
                ("sequence", models.BigIntegerField()),
                (
                    "step",
                    models.GeneratedField(
                        db_persist=True,
                        expression=models.Func(
                            "count",
                            template=STEP,
                        ),
                        output_field=models.SmallIntegerField(),
                    ),
                ),
            ],
            options={
                "db_table": "hour_count",
                "indexes": [
                    models.Index(models.F("hour"), name="hour_newest"),
                    models.Index(
                        models.F("hour"),
                        models.F("step"),
                        condition=models.Q(("step__gt", 0)),
                        name="hour_greatest",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="MinuteTotal",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "minute",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application", models.TextField()),
                ("minute", models.DateTimeField()),
                ("count", models.BigIntegerField()),
                ("sequence", models.BigIntegerField()),
            ],
            options={
                "db_table": "minute_total",
                "indexes": [models.Index(models.F("minute"), name="minute_total_newest")],
            },
        ),
        migrations.CreateModel(
            name="HourTotal",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "hour",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application", models.TextField()),
                ("hour", models.DateTimeField()),
                ("count", models.BigIntegerField()),
                ("sequence", models.BigIntegerField()),
            ],
            options={
                "db_table": "hour_total",
                "indexes": [models.Index(models.F("hour"), name="hour_total_newest")],
            },
        ),
        migrations.CreateModel(
            name="HeldChange",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "hour",
                        "pipeline",
                        "checkpoint",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application", models.TextField()),
                ("hour", models.DateTimeField()),
                ("pipeline", models.TextField()),
                ("checkpoint", models.TextField()),
                ("change", models.BigIntegerField()),
                ("sequence", models.BigIntegerField()),
            ],
            options={
                "db_table": "held_change",
                "indexes": [models.Index(models.F("hour"), name="held_change_newest")],
            },
        ),
        migrations.RunSQL(FILLFACTOR),
        migrations.RunSQL(TASK_NEWEST),
        # A rebuild fills it again, so it need not survive a crash of PostgreSQL.
        migrations.RunSQL("ALTER TABLE shadow_row SET UNLOGGED"),
    ]

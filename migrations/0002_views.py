"""The views: what is derived from the log, and can be derived again at any time."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0001_log")]

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
                    )
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
                ("pipeline", models.TextField(null=True)),
                ("count", models.BigIntegerField()),
                ("last_seen", models.DateTimeField()),
            ],
            options={
                "db_table": "error_group",
                "indexes": [
                    models.Index(
                        models.F("last_seen"),
                        models.F("application"),
                        models.F("fingerprint"),
                        name="group_newest",
                    )
                ],
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
            },
        ),
        # Room in each page, so that counting on moves no row and touches no index.
        *[
            migrations.RunSQL(
                f"ALTER TABLE {table} SET (fillfactor = 70)",
                f"ALTER TABLE {table} RESET (fillfactor)",
            )
            for table in ("task", "minute_count")
        ],
    ]

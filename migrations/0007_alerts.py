"""Create the tables of alerts: channels, rules, alerts, messages, limits."""

from __future__ import annotations

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
from django.db import migrations, models

# A server of its own may have no such role: then one role owns and uses the tables.
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE
            ON alert_channel, alert_rule, alert, alert_message, alert_limits TO arrester_app;
        GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("controlplane", "0006_rollouts"),
    ]

    operations = [
        migrations.CreateModel(
            name="AlertChannel",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.TextField(unique=True)),
                ("service", models.TextField()),
                ("shown_address", models.TextField()),
                ("secret", models.BinaryField()),
                ("created_at", models.DateTimeField()),
                ("leased_until", models.DateTimeField(null=True)),
                ("failing_since", models.DateTimeField(null=True)),
                ("failed_attempts", models.IntegerField(default=0)),
                ("retry_at", models.DateTimeField(null=True)),
                ("error", models.TextField(default="")),
            ],
            options={
                "db_table": "alert_channel",
            },
        ),
        migrations.CreateModel(
            name="AlertLimits",
            fields=[
                ("application", models.TextField(primary_key=True, serialize=False)),
                ("failures_per_minute", models.IntegerField(null=True)),
                ("tolerance_percent", models.IntegerField(null=True)),
                ("held_minutes", models.IntegerField(null=True)),
                ("replaced_per_hour", models.IntegerField(null=True)),
                ("silent_hours", models.IntegerField(null=True)),
            ],
            options={
                "db_table": "alert_limits",
            },
        ),
        migrations.CreateModel(
            name="Alert",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("cause", models.TextField()),
                ("critical", models.BooleanField()),
                ("application", models.TextField()),
                ("subject", models.TextField()),
                ("title", models.TextField()),
                ("detail", models.TextField(default="")),
                ("path", models.TextField()),
                ("count", models.BigIntegerField(default=1)),
                ("pipeline", models.TextField(null=True)),
                ("fingerprint", models.TextField(null=True)),
                ("since", models.DateTimeField()),
                ("opened_at", models.DateTimeField()),
                ("absent_since", models.DateTimeField(null=True)),
                ("resolved_at", models.DateTimeField(null=True)),
                ("acknowledged_at", models.DateTimeField(null=True)),
                ("acknowledged_by", models.TextField(default="")),
            ],
            options={
                "db_table": "alert",
                "indexes": [
                    models.Index(models.F("opened_at"), models.F("id"), name="alert_newest")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("resolved_at", None)),
                        fields=("cause", "application", "subject"),
                        name="alert_open_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="AlertRule",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.TextField(unique=True)),
                ("application", models.TextField(default="")),
                (
                    "causes",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), default=list, size=None
                    ),
                ),
                ("only_critical", models.BooleanField(default=False)),
                ("throttle_seconds", models.IntegerField(default=300)),
                ("quiet_from", models.TimeField(null=True)),
                ("quiet_until", models.TimeField(null=True)),
                ("time_zone", models.TextField(default="UTC")),
                ("escalate_seconds", models.IntegerField(null=True)),
                ("enabled", models.BooleanField(default=True)),
                ("created_at", models.DateTimeField()),
                (
                    "channel",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="controlplane.alertchannel"
                    ),
                ),
                (
                    "escalate_to",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="escalations",
                        to="controlplane.alertchannel",
                    ),
                ),
            ],
            options={
                "db_table": "alert_rule",
            },
        ),
        migrations.CreateModel(
            name="AlertMessage",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("channel_name", models.TextField()),
                ("kind", models.TextField()),
                ("about", models.UUIDField(null=True)),
                (
                    "alerts",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), default=list, size=None
                    ),
                ),
                (
                    "applications",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), default=list, size=None
                    ),
                ),
                ("critical", models.BooleanField(default=False)),
                ("text", models.TextField()),
                ("created_at", models.DateTimeField()),
                ("status", models.TextField()),
                ("attempts", models.IntegerField(default=0)),
                ("error", models.TextField(default="")),
                ("sent_at", models.DateTimeField(null=True)),
                ("settled", models.BooleanField(default=False)),
                (
                    "channel",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to="controlplane.alertchannel",
                    ),
                ),
                (
                    "rule",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to="controlplane.alertrule",
                    ),
                ),
            ],
            options={
                "db_table": "alert_message",
                "indexes": [
                    models.Index(
                        models.F("created_at"), models.F("id"), name="alert_message_newest"
                    ),
                    models.Index(
                        models.F("channel"),
                        models.F("created_at"),
                        condition=models.Q(("status", "PENDING")),
                        name="alert_message_pending",
                    ),
                    models.Index(
                        models.F("rule"),
                        models.F("created_at"),
                        condition=models.Q(("settled", False)),
                        name="alert_message_unsettled",
                    ),
                    django.contrib.postgres.indexes.GinIndex(
                        models.F("alerts"), fastupdate=False, name="alert_message_of_alert"
                    ),
                ],
            },
        ),
        migrations.RunSQL(GRANT),
    ]

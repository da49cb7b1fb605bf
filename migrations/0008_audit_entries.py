"""Rename the model of the audit's entries; the table keeps its names."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("controlplane", "0007_alerts"),
    ]

    operations = [
        migrations.RenameModel(old_name="AccountChange", new_name="AuditEntry"),
        migrations.AlterField(
            model_name="auditentry",
            name="account",
            field=models.TextField(db_column="account"),
        ),
        migrations.RenameField(model_name="auditentry", old_name="account", new_name="about"),
    ]

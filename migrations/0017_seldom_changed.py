"""What lists are found by changes seldom: about when a cause failed last, and the step that
its count has reached in an hour. A row that changes otherwise stays in its page."""

from __future__ import annotations

from django.db import migrations, models

ABOUT = "date_bin('10 seconds', %(expressions)s, 'epoch'::timestamptz)"
STEPS = ",".join(str(first * 10**zeros) for zeros in range(1, 10) for first in (2, 5, 10))
STEP = f"width_bucket(%(expressions)s, '{{{STEPS}}}'::bigint[])"


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0016_many_in_an_hour")]

    operations = [
        migrations.RemoveIndex(model_name="errorgroup", name="group_newest"),
        migrations.RemoveIndex(model_name="hourcount", name="hour_greatest"),
        # Before the rows are written anew for the column, which leaves room in their pages then.
        migrations.RunSQL(
            "ALTER TABLE error_group SET (fillfactor = 70)",
            "ALTER TABLE error_group RESET (fillfactor)",
        ),
        migrations.AddField(
            model_name="errorgroup",
            name="seen_about",
            field=models.GeneratedField(
                expression=models.Func("last_seen", template=ABOUT),
                output_field=models.DateTimeField(),
                db_persist=True,
            ),
        ),
        migrations.AddField(
            model_name="hourcount",
            name="step",
            field=models.GeneratedField(
                expression=models.Func("count", template=STEP),
                output_field=models.SmallIntegerField(),
                db_persist=True,
            ),
        ),
        migrations.AddIndex(
            model_name="errorgroup",
            index=models.Index(models.F("seen_about"), name="group_newest"),
        ),
        migrations.AddIndex(
            model_name="hourcount",
            index=models.Index(
                models.F("hour"),
                models.F("step"),
                condition=models.Q(("step__gt", 0)),
                name="hour_greatest",
            ),
        ),
    ]

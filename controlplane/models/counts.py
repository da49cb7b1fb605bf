"""Counts by the minute and the hour, so that no page ever reads the log for a chart.

Written by `projections`, and by nobody else.
"""

from __future__ import annotations

from django.db import models

#: How far one cause has come in one hour. What is found by its count is found by the step that it
#: has reached: that changes seldom, and a row of which no indexed column changes stays in its page.
STEPS = tuple(first * 10**zeros for zeros in range(1, 10) for first in (2, 5, 10))


class MinuteCount(models.Model):
    """Failed records of one minute (of occurrence), pipeline, stage and error group."""

    pk = models.CompositePrimaryKey("application", "minute", "pipeline", "stage", "fingerprint")
    application = models.TextField()
    minute = models.DateTimeField()
    pipeline = models.TextField()
    stage = models.TextField()
    fingerprint = models.TextField()
    count = models.BigIntegerField()
    sequence = models.BigIntegerField()

    class Meta:
        db_table = "minute_count"
        indexes = [models.Index("minute", name="minute_newest")]

    def __str__(self) -> str:
        return f"{self.application} {self.minute} {self.count}"


class HourCount(models.Model):
    """Failed records of one hour (of occurrence) and error group: what sparklines are drawn of."""

    pk = models.CompositePrimaryKey("application", "hour", "fingerprint")
    application = models.TextField()
    hour = models.DateTimeField()
    fingerprint = models.TextField()
    count = models.BigIntegerField()
    sequence = models.BigIntegerField()
    #: How many of STEPS the count has reached; PostgreSQL says so.
    step = models.GeneratedField(
        expression=models.Func(
            "count",
            template=f"width_bucket(%(expressions)s, '{{{','.join(map(str, STEPS))}}}'::bigint[])",
        ),
        output_field=models.SmallIntegerField(),
        db_persist=True,
    )

    class Meta:
        db_table = "hour_count"
        indexes = [
            models.Index("hour", name="hour_newest"),
            models.Index("hour", "step", name="hour_greatest", condition=models.Q(step__gt=0)),
        ]

    def __str__(self) -> str:
        return f"{self.application} {self.hour} {self.count}"


class MinuteTotal(models.Model):
    """Failed records of one minute, whatever failed: the sum of its `MinuteCount`s."""

    pk = models.CompositePrimaryKey("application", "minute")
    application = models.TextField()
    minute = models.DateTimeField()
    count = models.BigIntegerField()
    sequence = models.BigIntegerField()

    class Meta:
        db_table = "minute_total"
        indexes = [models.Index("minute", name="minute_total_newest")]

    def __str__(self) -> str:
        return f"{self.application} {self.minute} {self.count}"


class HourTotal(models.Model):
    """Failed records of one hour, whatever failed: the sum of its `HourCount`s."""

    pk = models.CompositePrimaryKey("application", "hour")
    application = models.TextField()
    hour = models.DateTimeField()
    count = models.BigIntegerField()
    sequence = models.BigIntegerField()

    class Meta:
        db_table = "hour_total"
        indexes = [models.Index("hour", name="hour_total_newest")]

    def __str__(self) -> str:
        return f"{self.application} {self.hour} {self.count}"


class HeldChange(models.Model):
    """By how much the records that a pipeline's tasks hold became more, or less, in an hour (of
    occurrence): with what they hold now, it gives what they held at any hour."""

    pk = models.CompositePrimaryKey("application", "hour", "pipeline", "checkpoint")
    application = models.TextField()
    hour = models.DateTimeField()
    pipeline = models.TextField()
    checkpoint = models.TextField()
    change = models.BigIntegerField()
    sequence = models.BigIntegerField()

    class Meta:
        db_table = "held_change"
        indexes = [models.Index("hour", name="held_change_newest")]

    def __str__(self) -> str:
        return f"{self.application} {self.hour} {self.change:+}"

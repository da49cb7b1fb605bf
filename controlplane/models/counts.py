"""Counts per minute and hour, so that charts do not read the log.

Only `views.projections` writes them.
"""

from __future__ import annotations

from django.db import models

#: Steps of the count of one group in one hour. Lists search by the step, which changes seldom: an
#: update that changes no indexed column stays in its page (HOT).
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
    """Failed records of one hour (of occurrence) and error group, for sparklines."""

    pk = models.CompositePrimaryKey("application", "hour", "fingerprint")
    application = models.TextField()
    hour = models.DateTimeField()
    fingerprint = models.TextField()
    count = models.BigIntegerField()
    sequence = models.BigIntegerField()
    #: How many of STEPS the count has reached; PostgreSQL computes it.
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
    """All failed records of one minute: the sum of its `MinuteCount`s."""

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
    """All failed records of one hour: the sum of its `HourCount`s."""

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
    """The change of a pipeline's held records in one hour (of occurrence).

    Subtracted from the records held now, the changes give those held at any hour.
    """

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

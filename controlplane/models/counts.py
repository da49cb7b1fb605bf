"""Counts per minute and hour, so that charts do not read the log.

Only `views.projections` writes them.
"""

from __future__ import annotations

from django.db import models

from arrester.controlplane.models.table import Table

#: Steps of the count of one group in one hour. Lists search by the step, which changes seldom: an
#: update that changes no indexed column stays in its page (HOT).
STEPS = tuple(first * 10**zeros for zeros in range(1, 10) for first in (2, 5, 10))


class MinuteCount(Table):
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


class HourCount(Table):
    """Failed records of one hour (of occurrence) and error group, for sparklines.

    The index of the key has the hour last.
    """

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


class HourStage(Table):
    """Failed records of one hour (of occurrence), pipeline and stage: the sum of its
    `MinuteCount`s."""

    pk = models.CompositePrimaryKey("application", "hour", "pipeline", "stage")
    application = models.TextField()
    hour = models.DateTimeField()
    pipeline = models.TextField()
    stage = models.TextField()
    count = models.BigIntegerField()
    sequence = models.BigIntegerField()

    class Meta:
        db_table = "hour_stage"


class MinuteTotal(Table):
    """All failed records of one minute: the sum of its `MinuteCount`s."""

    pk = models.CompositePrimaryKey("application", "minute")
    application = models.TextField()
    minute = models.DateTimeField()
    count = models.BigIntegerField()
    sequence = models.BigIntegerField()

    class Meta:
        db_table = "minute_total"
        indexes = [models.Index("minute", name="minute_total_newest")]


class HourTotal(Table):
    """All failed records of one hour: the sum of its `HourCount`s."""

    pk = models.CompositePrimaryKey("application", "hour")
    application = models.TextField()
    hour = models.DateTimeField()
    count = models.BigIntegerField()
    sequence = models.BigIntegerField()

    class Meta:
        db_table = "hour_total"
        indexes = [models.Index("hour", name="hour_total_newest")]


class HeldChange(Table):
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


class HeldMinute(Table):
    """The change of a pipeline's held records in one minute (of occurrence).

    Only `views.held_minutes` writes them; a rebuild leaves them.
    """

    pk = models.CompositePrimaryKey("application", "minute", "pipeline", "checkpoint")
    application = models.TextField()
    minute = models.DateTimeField()
    pipeline = models.TextField()
    checkpoint = models.TextField()
    change = models.BigIntegerField()

    class Meta:
        db_table = "held_minute"
        indexes = [models.Index("minute", name="held_minute_newest")]


class FailureTotal(Table):
    """The counters of all tasks of a pipeline, since creation: see `domain.state.states.Counters`.

    Only `views.failure_totals` writes it, in the transaction that appends the events; a rebuild
    leaves it.
    """

    pk = models.CompositePrimaryKey("application", "pipeline")
    application = models.TextField()
    pipeline = models.TextField()
    #: Failed records, each counted once.
    failed = models.BigIntegerField()
    record_failures = models.BigIntegerField()
    records_skipped = models.BigIntegerField()
    total_retries = models.BigIntegerField()
    failures_logged = models.BigIntegerField()
    dlq_records_produced = models.BigIntegerField()
    dlq_produce_failures = models.BigIntegerField()
    last_failure_timestamp = models.DateTimeField(null=True)

    class Meta:
        db_table = "failure_total"

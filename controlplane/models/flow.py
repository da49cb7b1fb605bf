"""What flowed through pipelines, per minute, per hour and in total.

Only `views.flow` writes them, in the transaction that appends the events; a rebuild leaves them.
"""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from arrester.controlplane.models.table import Table


class Flow(Table):
    """Sums of `FlowMeasured`."""

    application = models.TextField()
    pipeline = models.TextField()
    checkpoint = models.TextField()
    micro_batches = models.BigIntegerField()
    records_in = models.BigIntegerField()
    records_out = models.BigIntegerField()
    failed = models.BigIntegerField()
    skipped = models.BigIntegerField()
    held = models.BigIntegerField()
    drained = models.BigIntegerField()
    #: A packed histogram, see `domain.durations`.
    durations = ArrayField(models.BigIntegerField())
    #: The newest values.
    last_batch_at = models.DateTimeField(null=True)
    backlog = models.BigIntegerField(null=True)
    backlog_unit = models.TextField(null=True)
    watermark = models.DateTimeField(null=True)
    #: The log position of the last event.
    sequence = models.BigIntegerField()

    class Meta:
        abstract = True


class FlowMinute(Flow):
    """The flow of a run in one minute, by the clock of the agent."""

    pk = models.CompositePrimaryKey("application", "pipeline", "checkpoint", "minute", "epoch")
    #: The number of the run.
    epoch = models.BigIntegerField()
    minute = models.DateTimeField()

    class Meta:
        db_table = "flow_minute"
        indexes = [models.Index("minute", name="flow_minute_newest")]


class FlowHour(Flow):
    """The flow of a run in one hour: the sum of its minutes."""

    pk = models.CompositePrimaryKey("application", "pipeline", "checkpoint", "hour", "epoch")
    epoch = models.BigIntegerField()
    hour = models.DateTimeField()

    class Meta:
        db_table = "flow_hour"
        indexes = [models.Index("hour", name="flow_hour_newest")]


class FlowTotal(Flow):
    """The flow of all time, of a pipeline on a checkpoint: counters, and the newest values."""

    pk = models.CompositePrimaryKey("application", "pipeline", "checkpoint")

    class Meta:
        db_table = "flow_total"

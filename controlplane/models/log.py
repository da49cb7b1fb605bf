"""The log: its streams, batches and events, the quarantine, snapshots and bases.

Only `store` writes them. The event tables are partitioned by day.
"""

from __future__ import annotations

from django.db import models

from arrester.controlplane.models.table import Table


class Stream(Table):
    """An application's log: its newest position, and the place read in the Redis stream."""

    application = models.TextField(primary_key=True)
    #: Represents the name in large tables; PostgreSQL assigns it.
    id = models.IntegerField(unique=True)
    #: The newest entry of the stream in Redis that is in the log.
    cursor = models.TextField()
    #: How many times Redis lost the stream and the cursor was reset.
    generation = models.IntegerField()
    #: The sequence of the newest event, and when it was received.
    sequence = models.BigIntegerField()
    received_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "stream"


class Event(Table):
    """The columns that find an event; its content is in its batch.

    Names are stored as numbers, see `store.column_values`.
    """

    pk = models.CompositePrimaryKey("stream", "sequence", "day")
    stream = models.IntegerField()
    #: The day of receipt in UTC: the partition key.
    day = models.DateField()
    sequence = models.BigIntegerField()
    occurred_at = models.DateTimeField()
    #: Index in its batch.
    place = models.IntegerField()
    type = models.IntegerField()
    #: The digest of the event's task; commands for a task have it, too.
    task = models.UUIDField(null=True)
    #: The hash key of the error group.
    cause = models.BigIntegerField(null=True)
    #: Failed records; set only on RecordFailed and FailuresCounted.
    count = models.BigIntegerField(null=True)
    pipeline = models.IntegerField(null=True)
    stage = models.IntegerField(null=True)
    exception_class = models.IntegerField(null=True)
    command = models.UUIDField(null=True)
    #: The person, if the event is an action and not the result of a command.
    actor = models.TextField(null=True)

    class Meta:
        db_table = "event"


class Batch(Table):
    """The log itself: `count` events from `sequence` on, packed as received.

    `heads` are the events without bodies; `bodies` are records and stack traces. Erasing a body
    replaces `bodies`.
    """

    pk = models.CompositePrimaryKey("stream", "sequence", "day")
    stream = models.IntegerField()
    sequence = models.BigIntegerField()
    day = models.DateField()
    count = models.IntegerField()
    id = models.UUIDField()
    received_at = models.DateTimeField()
    heads = models.BinaryField()
    bodies = models.BinaryField(null=True)

    class Meta:
        db_table = "batch"


class BatchSeen(Table):
    """A batch in the log; a second delivery of it is ignored."""

    pk = models.CompositePrimaryKey("application", "batch")
    application = models.TextField()
    batch = models.UUIDField()
    #: The sequence of its first event, and how many of its events were valid.
    first_sequence = models.BigIntegerField()
    count = models.IntegerField()
    received_at = models.DateTimeField()

    class Meta:
        db_table = "batch_seen"


class IdsKept(Table):
    """The day since which all batch ids are known; earlier ids were dropped by retention.

    One row, created by the first drop; the day only increases.
    """

    id = models.SmallIntegerField(primary_key=True)
    since = models.DateField()

    class Meta:
        db_table = "ids_kept"
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="ids_kept_once")]


class Quarantine(Table):
    """An invalid entry of a stream, or one invalid event of its batch."""

    id = models.BigAutoField(primary_key=True)
    application = models.TextField()
    entry = models.TextField()
    batch = models.UUIDField(null=True)
    #: Index of the event in its batch; NULL for the whole entry.
    index = models.IntegerField(null=True)
    reason = models.TextField()
    raw = models.BinaryField()
    #: The bytes of an entry of which `raw` has the first ones only.
    cut_from = models.BigIntegerField(null=True)
    #: SHA-256 of `raw`: an entry that is read twice is stored once.
    digest = models.TextField()
    received_at = models.DateTimeField()
    requeued_at = models.DateTimeField(null=True)
    #: Valid, but older than the replay horizon: it may be in the log already.
    too_old = models.BooleanField(default=False, db_default=False)
    dismissed_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "quarantine"
        constraints = [
            models.UniqueConstraint(
                fields=["application", "entry", "index", "digest"],
                nulls_distinct=False,
                name="kept_aside_once",
            )
        ]
        indexes = [
            # Each page and each scrape counts these, however many entries were handled.
            models.Index(
                "application",
                name="not_understood",
                condition=models.Q(requeued_at=None, dismissed_at=None, too_old=False),
            ),
            models.Index(
                "received_at",
                "application",
                name="too_old_lately",
                condition=models.Q(requeued_at=None, dismissed_at=None, too_old=True),
            ),
        ]


class StateAtPosition(Table):
    """Base of the tables of states at log positions.

    Each position stores the states that changed since the position before it, so the newest row of
    a key up to a position is its state as of that position.
    """

    pk = models.CompositePrimaryKey("application", "kind", "key", "position")
    application = models.TextField()
    #: The table of the view, and the key of the row in it.
    kind = models.TextField()
    key = models.TextField()
    position = models.BigIntegerField()
    state = models.TextField()

    class Meta:
        abstract = True


class Snapshot(StateAtPosition):
    """A state that speeds up reads of the past; it can be derived from the log."""

    class Meta:
        db_table = "snapshot"
        indexes = [
            # For comparing and deleting the states of one position.
            models.Index("application", "position", name="snapshot_position"),
        ]


class Base(Table):
    """A position that the log may begin after; `BaseState` has the verified states there."""

    pk = models.CompositePrimaryKey("application", "position")
    application = models.TextField()
    position = models.BigIntegerField()
    #: When the event at the position was received.
    received_at = models.DateTimeField()
    made_at = models.DateTimeField()

    class Meta:
        db_table = "base"


class BaseState(StateAtPosition):
    """A state at a base: it replaces the events up to there, once they are dropped."""

    class Meta:
        db_table = "base_state"

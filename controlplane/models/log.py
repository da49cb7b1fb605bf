"""The log: the streams it is fed from, its batches and events, what is quarantined, and its bases.

Written by `store`, and by nobody else. The event tables are partitioned by day.
"""

from __future__ import annotations

from django.db import models


class Stream(models.Model):
    """An application's log: how long it is, and how much of its stream in Redis is in it."""

    application = models.TextField(primary_key=True)
    #: In the place of the name, where there are many rows; the database counts it on.
    id = models.IntegerField(unique=True)
    #: The newest entry of the stream in Redis that is in the log.
    cursor = models.TextField()
    #: How often Redis lost the stream, so that the cursor had to begin again.
    generation = models.IntegerField()
    #: The sequence of the newest event, and when it came.
    sequence = models.BigIntegerField()
    received_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "stream"

    def __str__(self) -> str:
        return f"{self.application} @ {self.sequence}"


class Event(models.Model):
    """What an event is searched by; what it says is in its batch. Names are numbers here, see
    `store.marks`."""

    pk = models.CompositePrimaryKey("stream", "sequence", "day")
    stream = models.IntegerField()
    #: Of receipt, in UTC: the partition.
    day = models.DateField()
    sequence = models.BigIntegerField()
    occurred_at = models.DateTimeField()
    #: Among the events of its batch.
    place = models.IntegerField()
    type = models.IntegerField()
    #: The digest of the task that it is about, also of a command for it.
    task = models.UUIDField(null=True)
    #: The error group that it is about.
    cause = models.BigIntegerField(null=True)
    #: Failed records: set on RecordFailed and FailuresCounted, and on nothing else.
    count = models.BigIntegerField(null=True)
    pipeline = models.IntegerField(null=True)
    stage = models.IntegerField(null=True)
    exception_class = models.IntegerField(null=True)
    command = models.UUIDField(null=True)
    #: Who did it, where it is what a person did and no consequence of a command.
    actor = models.TextField(null=True)

    class Meta:
        db_table = "event"

    def __str__(self) -> str:
        return f"{self.stream} @ {self.sequence}"


class Batch(models.Model):
    """The log itself: `count` events from `sequence` on as they came, packed, without their
    bodies; and the bodies (records, stack traces). To erase one is to pack these without it."""

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

    def __str__(self) -> str:
        return f"{self.stream} @ {self.sequence}"


class BatchSeen(models.Model):
    """A batch that is in the log: whoever sends it again changes nothing."""

    pk = models.CompositePrimaryKey("application", "batch")
    application = models.TextField()
    batch = models.UUIDField()
    #: The sequence of its first event, and how many of its events were understood.
    first_sequence = models.BigIntegerField()
    count = models.IntegerField()
    received_at = models.DateTimeField()

    class Meta:
        db_table = "batch_seen"

    def __str__(self) -> str:
        return f"{self.application} {self.batch}"


class IdsKept(models.Model):
    """The day from which on the ids of batches are known: before it some were dropped. One row,
    and none before the first was; it goes forward only, by whoever drops them."""

    id = models.SmallIntegerField(primary_key=True)
    since = models.DateField()

    class Meta:
        db_table = "ids_kept"
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="ids_kept_once")]

    def __str__(self) -> str:
        return f"since {self.since}"


class Quarantine(models.Model):
    """An entry of a stream, or one event of it, that was not understood."""

    id = models.BigAutoField(primary_key=True)
    application = models.TextField()
    entry = models.TextField()
    batch = models.UUIDField(null=True)
    #: Of the event in its batch; NULL when the whole entry is meant.
    index = models.IntegerField(null=True)
    reason = models.TextField()
    raw = models.BinaryField()
    #: SHA-256 of `raw`: the same thing read twice is kept once.
    digest = models.TextField()
    received_at = models.DateTimeField()
    requeued_at = models.DateTimeField(null=True)
    #: Nothing is wrong with it but its age: it may be in the log already.
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
            # What each page and scrape counts, however much is kept aside or was put back.
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

    def __str__(self) -> str:
        return f"{self.application} {self.entry}: {self.reason}"


class Kept(models.Model):
    """Base of the states that are kept as they were at a position: those that had changed since
    the position before. The newest row of a key up to a position is what was true there."""

    pk = models.CompositePrimaryKey("application", "kind", "key", "position")
    application = models.TextField()
    #: The name of the view that the state is of, and its key there.
    kind = models.TextField()
    key = models.TextField()
    position = models.BigIntegerField()
    state = models.TextField()

    class Meta:
        abstract = True


class Snapshot(Kept):
    """A state kept so that the past is found quickly; it can be derived again from the log."""

    class Meta:
        db_table = "snapshot"
        indexes = [
            # What one snapshot holds, for who compares it or drops it.
            models.Index("application", "position", name="snapshot_position"),
        ]

    def __str__(self) -> str:
        return f"{self.application} @ {self.position} {self.kind} {self.key}"


class Base(models.Model):
    """A position that the log may begin after: what was true there is in `BaseState`, verified."""

    pk = models.CompositePrimaryKey("application", "position")
    application = models.TextField()
    position = models.BigIntegerField()
    #: When the event at the position came.
    received_at = models.DateTimeField()
    made_at = models.DateTimeField()

    class Meta:
        db_table = "base"

    def __str__(self) -> str:
        return f"{self.application} @ {self.position}"


class BaseState(Kept):
    """A state at a base: the truth in place of the events up to there, once they are dropped."""

    class Meta:
        db_table = "base_state"

    def __str__(self) -> str:
        return f"{self.application} @ {self.position} {self.kind} {self.key}"

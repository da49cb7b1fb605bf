"""All tables: the log, the streams it is fed from, and the views derived from it.

Django describes them, makes the migrations and reads the views. The log is written by `store`,
the views by `projections`, and by nobody else. The event tables are partitioned by day.
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


class ShadowRow(models.Model):
    """A row of a view that is made beside the live one, until a rebuild swaps them."""

    pk = models.CompositePrimaryKey("application", "view", "key")
    application = models.TextField()
    #: The name of the view's table, the row's key as a list, and the row, both as JSON.
    view = models.TextField()
    key = models.TextField()
    row = models.TextField()

    class Meta:
        db_table = "shadow_row"

    def __str__(self) -> str:
        return f"{self.application} {self.view} {self.key}"


class Sighting(models.Model):
    """When a part of the system (redis, wake, worker) was last seen at work."""

    name = models.TextField(primary_key=True)
    at = models.DateTimeField()

    class Meta:
        db_table = "sighting"

    def __str__(self) -> str:
        return f"{self.name} {self.at}"


class AccountChange(models.Model):
    """Who changed whose account: it belongs to no application, and so to no log of one."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    actor = models.TextField()
    account = models.TextField()
    #: One of `actions.AccountAct`.
    act = models.TextField()
    detail = models.TextField()

    class Meta:
        db_table = "account_change"
        indexes = [models.Index("at", "id", name="account_change_newest")]

    def __str__(self) -> str:
        return f"{self.actor} {self.act} {self.account}"


class View(models.Model):
    """Base of the views: the domain's state as JSON beside the columns that are searched by."""

    state = models.TextField()
    #: The position in the log that the row is true for.
    sequence = models.BigIntegerField()

    class Meta:
        abstract = True


class Application(View):
    """See `ApplicationState`."""

    name = models.TextField(primary_key=True)
    status = models.TextField()

    class Meta:
        db_table = "application"

    def __str__(self) -> str:
        return self.name


class Instance(View):
    """See `InstanceState`."""

    pk = models.CompositePrimaryKey("application", "id")
    application = models.TextField()
    id = models.UUIDField()
    status = models.TextField()
    lost = models.BooleanField()
    started_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "instance"

    def __str__(self) -> str:
        return f"{self.application} {self.id}"


class Thread(View):
    """See `ThreadState`."""

    pk = models.CompositePrimaryKey("application", "pipeline", "checkpoint")
    application = models.TextField()
    pipeline = models.TextField()
    checkpoint = models.TextField()
    epoch = models.BigIntegerField()
    status = models.TextField()
    since = models.DateTimeField(null=True)

    class Meta:
        db_table = "thread"

    def __str__(self) -> str:
        return f"{self.application} {self.pipeline} {self.checkpoint}"


class Task(View):
    """See `TaskState`."""

    digest = models.UUIDField(primary_key=True)
    application = models.TextField()
    pipeline = models.TextField()
    checkpoint = models.TextField()
    #: NULL is the global task, '' is a key.
    key = models.TextField(null=True)
    status = models.TextField()
    since = models.DateTimeField(null=True)
    failed = models.BigIntegerField()
    held = models.BigIntegerField()
    #: The error group of the failure that it stood at last; NULL where no record is to blame.
    fingerprint = models.TextField(null=True)

    class Meta:
        db_table = "task"
        indexes = [
            models.Index("application", "pipeline", "checkpoint", "status", name="task_of_line"),
            models.Index(
                "application",
                "fingerprint",
                name="task_stopped",
                condition=~models.Q(status="RUNNING"),
            ),
            models.Index("held", "digest", name="task_holds", condition=models.Q(held__gt=0)),
        ]

    def __str__(self) -> str:
        return f"{self.application} {self.pipeline} {self.key}"


class Command(View):
    """See `CommandState`."""

    pk = models.CompositePrimaryKey("application", "id")
    application = models.TextField()
    id = models.UUIDField()
    kind = models.TextField()
    actor = models.TextField()
    #: The digest of the task that it is about.
    task = models.UUIDField(null=True)
    status = models.TextField()
    #: Whether anything can follow.
    open = models.BooleanField()
    issued_at = models.DateTimeField()

    class Meta:
        db_table = "command"
        indexes = [
            models.Index("id", name="command_by_id"),
            models.Index("issued_at", "id", name="command_newest"),
            models.Index("task", "issued_at", name="command_of_task"),
            models.Index("application", "issued_at", "id", name="command_of_application"),
            models.Index("application", name="command_open", condition=models.Q(open=True)),
        ]

    def __str__(self) -> str:
        return f"{self.application} {self.kind} {self.id}"


class ErrorGroup(View):
    """See `GroupState`."""

    pk = models.CompositePrimaryKey("application", "fingerprint")
    application = models.TextField()
    fingerprint = models.TextField()
    stage = models.TextField()
    exception_class = models.TextField()
    pipeline = models.TextField(null=True)
    status = models.TextField(default="UNRESOLVED")
    count = models.BigIntegerField()
    first_seen = models.DateTimeField(null=True)
    last_seen = models.DateTimeField()

    class Meta:
        db_table = "error_group"
        indexes = [
            models.Index("application", name="group_muted", condition=models.Q(status="MUTED")),
            models.Index("last_seen", "application", "fingerprint", name="group_newest"),
            models.Index(
                "status",
                "application",
                "stage",
                name="group_kinds",
                condition=models.Q(first_seen__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.application} {self.fingerprint}"


class RetentionRefusal(models.Model):
    """An application whose log gives other states than were shown: nothing is dropped meanwhile."""

    application = models.TextField(primary_key=True)
    since = models.DateTimeField()
    reason = models.TextField()

    class Meta:
        db_table = "retention_refusal"

    def __str__(self) -> str:
        return f"{self.application} since {self.since}: {self.reason}"


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

    class Meta:
        db_table = "hour_count"
        indexes = [models.Index("hour", name="hour_newest")]

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

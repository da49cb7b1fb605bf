"""The index of dead letters, and their totals. Only `views.dead_letters` writes them.

Names are stored as numbers, see `store.column_values`. The log has the rest: place, format, who
skipped the record, and the names.
"""

from __future__ import annotations

from enum import IntEnum

from django.db import models

from arrester.controlplane.models.table import Table

#: The `cause` of dead letters without an error group.
NO_CAUSE = 0


class DeadLetterStatus(IntEnum):
    """What became of a dead letter."""

    WAITING = 0
    #: Its task holds the record again, or processes it.
    REDRIVEN = 1
    PROCESSED = 2
    #: A newer event reported it than the one that changed its status. It waits, too.
    FAILED_AGAIN = 3
    #: A person decided that it is not processed again.
    DISCARDED = 4


#: The statuses of dead letters that wait.
OPEN = (DeadLetterStatus.WAITING, DeadLetterStatus.FAILED_AGAIN)


class _DeadLetter(Table):
    """A dead letter, as the newest event about it reports it."""

    pk = models.CompositePrimaryKey("stream", "id")
    #: The log position of that event, and the number of the dead letter in it.
    sequence = models.BigIntegerField()
    #: The log position of the first event about it.
    first_sequence = models.BigIntegerField(default=0, db_default=0)
    #: Keys of the pipeline and of the error group within the application.
    pipeline = models.BigIntegerField()
    cause = models.BigIntegerField()
    #: NULL: the record has none, or it is not known.
    position = models.BigIntegerField(null=True)
    occurred_at = models.DateTimeField()
    stream = models.IntegerField()
    number = models.IntegerField()
    #: The size of the record as JSON, in bytes; NULL: not known.
    size = models.IntegerField(null=True)
    id = models.UUIDField()
    #: The digest of its task.
    task = models.UUIDField()
    #: The redrive that took it last; NULL: none of the server.
    redrive = models.UUIDField(null=True)
    status = models.SmallIntegerField(default=0, db_default=0)
    #: How often it was redriven.
    redrives = models.SmallIntegerField(default=0, db_default=0)

    class Meta:
        abstract = True


class DeadLetter(_DeadLetter):
    """The live row of a dead letter."""

    class Meta:
        db_table = "dead_letter"
        indexes = [
            # A list reads each status of each of its causes in this order.
            models.Index(
                *("pipeline", "cause", "status", "occurred_at", "sequence", "number"),
                name="dead_letter_of_pipeline",
            ),
            models.Index(
                *("task", "cause", "status", "occurred_at", "sequence", "number"),
                name="dead_letter_of_task_cause",
            ),
            models.Index(
                *("stream", "task"),
                name="dead_letter_redriven",
                condition=models.Q(status=DeadLetterStatus.REDRIVEN.value),
            ),
            models.Index(
                *("redrive", "status"),
                name="dead_letter_of_redrive",
                condition=models.Q(redrive__isnull=False),
            ),
        ]


class ShadowDeadLetter(_DeadLetter):
    """The row of a dead letter that a rebuild has derived."""

    class Meta:
        db_table = "shadow_dead_letter"


class _DeadLetterTotal(Table):
    """The number of dead letters of a task with one cause."""

    pk = models.CompositePrimaryKey("stream", "task", "cause")
    stream = models.IntegerField()
    task = models.UUIDField()
    cause = models.BigIntegerField()
    pipeline = models.BigIntegerField()
    #: The error group; NULL: none.
    fingerprint = models.TextField(null=True)
    count = models.BigIntegerField()
    #: Those that are OPEN.
    waiting = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        abstract = True


class DeadLetterTotal(_DeadLetterTotal):
    """The live total."""

    class Meta:
        db_table = "dead_letter_total"


class ShadowDeadLetterTotal(_DeadLetterTotal):
    """The total that a rebuild has derived."""

    class Meta:
        db_table = "shadow_dead_letter_total"

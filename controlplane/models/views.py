"""The views: one row with the current state of each application, run, task, command and group.

Only `views.projections` writes them.
"""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models

from arrester.controlplane.models.table import Table


def about(moment: str) -> str:
    """Return the SQL that rounds a time down to ten seconds."""
    return f"date_bin('10 seconds', {moment}, 'epoch'::timestamptz)"


class View(Table):
    """Base of the views: the domain's state as JSON, and the columns that queries search by."""

    state = models.TextField()
    #: The log position that the row reflects.
    sequence = models.BigIntegerField()

    class Meta:
        abstract = True


class Application(View):
    """See `ApplicationState`."""

    name = models.TextField(primary_key=True)
    status = models.TextField()

    class Meta:
        db_table = "application"


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


class Task(View):
    """See `TaskState`."""

    digest = models.UUIDField(primary_key=True)
    application = models.TextField()
    pipeline = models.TextField()
    checkpoint = models.TextField()
    #: NULL is the global task, '' is a key.
    key = models.TextField(null=True)
    status = models.TextField()
    #: When it first stopped at its record; of a RUNNING task, its last change.
    since = models.DateTimeField(null=True)
    failed = models.BigIntegerField()
    held = models.BigIntegerField()
    #: The error group of its last stop; NULL if no record caused it.
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


class Command(View):
    """See `CommandState`."""

    pk = models.CompositePrimaryKey("application", "id")
    application = models.TextField()
    id = models.UUIDField()
    kind = models.TextField()
    actor = models.TextField()
    #: The digest of its task.
    task = models.UUIDField(null=True)
    status = models.TextField()
    #: Whether its status can still change.
    open = models.BooleanField()
    issued_at = models.DateTimeField()
    #: The rollout that issued it.
    part_of = models.UUIDField(null=True)

    class Meta:
        db_table = "command"
        indexes = [
            models.Index("id", name="command_by_id"),
            models.Index("issued_at", "id", name="command_newest"),
            models.Index("task", "issued_at", name="command_of_task"),
            models.Index("application", "issued_at", "id", name="command_of_application"),
            models.Index("application", name="command_open", condition=models.Q(open=True)),
            models.Index(
                "part_of", name="command_of_rollout", condition=models.Q(part_of__isnull=False)
            ),
        ]


class ErrorGroup(View):
    """See `GroupState`."""

    pk = models.CompositePrimaryKey("application", "fingerprint")
    application = models.TextField()
    fingerprint = models.TextField()
    stage = models.TextField()
    exception_class = models.TextField()
    #: NULL: none; `column_values.ANY`: not known.
    other_classes = ArrayField(models.TextField(), null=True)
    pipeline = models.TextField(null=True)
    status = models.TextField(default="UNRESOLVED")
    count = models.BigIntegerField()
    first_seen = models.DateTimeField(null=True)
    last_seen = models.DateTimeField()
    #: `last_seen` rounded down, computed by PostgreSQL for the index: an update that changes no
    #: indexed column stays in its page (HOT), and a frequent group is seen many times a second.
    seen_about = models.GeneratedField(
        expression=models.Func("last_seen", template=about("%(expressions)s")),
        output_field=models.DateTimeField(),
        db_persist=True,
    )

    class Meta:
        db_table = "error_group"
        indexes = [
            models.Index("application", name="group_muted", condition=models.Q(status="MUTED")),
            models.Index("seen_about", name="group_newest"),
            models.Index("stage", "application", name="group_stage"),
            models.Index("exception_class", "application", name="group_class"),
            GinIndex(
                "other_classes",
                name="group_other_classes",
                condition=models.Q(other_classes__isnull=False),
                # Rarely written; pending entries would slow down each page.
                fastupdate=False,
            ),
            models.Index(
                "status",
                "application",
                "stage",
                name="group_kinds",
                condition=models.Q(first_seen__isnull=False),
            ),
        ]


class ShadowRow(Table):
    """A row of a view that a rebuild has derived, until it is swapped with the live row."""

    pk = models.CompositePrimaryKey("application", "view", "key")
    application = models.TextField()
    #: The name of the view's table, the row's key as a list, and the row, both as JSON.
    view = models.TextField()
    key = models.TextField()
    row = models.TextField()

    class Meta:
        db_table = "shadow_row"

"""The fields of REST responses and requests, from which the OpenAPI schema is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from rest_framework import serializers

from arrester.controlplane.domain.events import CommandKind, StageAnswer, StoredEvent
from arrester.controlplane.domain.state.states import (
    ApplicationStatus,
    CommandStatus,
    GroupStatus,
    TaskStatus,
    task_id,
)

#: The formats of a time.
A_TIME = "2026-11-20T09:00:00Z, 2026-11-20T10:00+01:00, or without a zone in UTC"


def choices(enum: Any) -> list[str]:
    """Return the values of an enumeration."""
    return [member.value for member in enum]


class Choice(serializers.ChoiceField):
    """One of some values; the error for another value lists them."""

    def __init__(self, allowed: Sequence[Any], **kwargs: Any) -> None:
        super().__init__(allowed, **kwargs)
        self.error_messages["invalid_choice"] = f"one of {', '.join(map(str, self.choices))}"


class Moment(serializers.DateTimeField):
    """A time; the error for an invalid one shows the formats."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.error_messages |= dict.fromkeys(
            self.default_error_messages, "a time in ISO 8601: " + A_TIME
        )


class FailureField(serializers.Serializer[Any]):
    """Why an operation failed."""

    stage = serializers.CharField()
    exception_class = serializers.CharField()
    condition = serializers.CharField(allow_null=True)
    message = serializers.CharField()
    fingerprint = serializers.CharField()
    frame = serializers.CharField(allow_null=True)
    attempts = serializers.IntegerField()


class Application(serializers.Serializer[Any]):
    """An application: its state and counts."""

    name = serializers.CharField(source="state.name")
    status = serializers.ChoiceField(choices(ApplicationStatus), source="state.status.value")
    since = serializers.DateTimeField(source="state.since", allow_null=True)
    reason = serializers.CharField(source="state.reason", allow_null=True)
    actor = serializers.CharField(source="state.actor", allow_null=True)
    failed = serializers.IntegerField(source="state.failed", help_text="Failed records, exact.")
    last_event_at = serializers.DateTimeField(source="state.last_event_at", allow_null=True)
    paused = serializers.IntegerField()
    dead = serializers.IntegerField()
    held = serializers.IntegerField()
    instances = serializers.IntegerField(help_text="Live instances.")
    lost = serializers.IntegerField(help_text="Of these, without a heartbeat.")
    groups = serializers.IntegerField()
    open_commands = serializers.IntegerField()
    position = serializers.IntegerField(
        source="state.sequence", help_text="The position in the log that the answer is as of."
    )


class Counters(serializers.Serializer[Any]):
    """The counters of a task, since creation."""

    record_failures = serializers.IntegerField()
    records_skipped = serializers.IntegerField()
    total_retries = serializers.IntegerField()
    failures_logged = serializers.IntegerField()
    dlq_records_produced = serializers.IntegerField()
    dlq_produce_failures = serializers.IntegerField()
    last_failure_timestamp = serializers.DateTimeField(allow_null=True)


class Task(serializers.Serializer[Any]):
    """A task: one partition, or one key, of a pipeline on a checkpoint."""

    id = serializers.CharField(
        source="id.digest", help_text="32 hexadecimal digits; never changes."
    )
    name = serializers.CharField(source="id.printed", help_text="For people; not unique.")
    application = serializers.CharField(source="id.application")
    pipeline = serializers.CharField(source="id.pipeline")
    checkpoint = serializers.CharField(source="id.checkpoint")
    key = serializers.CharField(source="id.key", allow_null=True, allow_blank=True)
    status = serializers.ChoiceField(choices(TaskStatus), source="status.value")
    since = serializers.DateTimeField(allow_null=True)
    position = serializers.IntegerField(
        allow_null=True, help_text="The position of the record at which the task stopped."
    )
    held = serializers.IntegerField()
    failed = serializers.IntegerField()
    failure = FailureField(allow_null=True)
    counters = Counters()
    sequence = serializers.IntegerField(help_text="The position in the log that this is as of.")


class Failure(serializers.Serializer[Any]):
    """One failed record reported in full, or several that were only counted.

    The sum of `count` over all rows of a filter is exact: each failed record is in one row.
    """

    application = serializers.CharField()
    sequence = serializers.IntegerField()
    type = serializers.ChoiceField(["RecordFailed", "FailuresCounted"], source="event.type")
    occurred_at = serializers.DateTimeField(source="event.occurred_at")
    received_at = serializers.DateTimeField()
    pipeline = serializers.CharField(source="event.run.pipeline")
    checkpoint = serializers.CharField(source="event.run.checkpoint")
    epoch = serializers.IntegerField(source="event.run.epoch")
    task = serializers.SerializerMethodField(help_text="The id of the task.")
    key = serializers.CharField(source="event.data.task", allow_null=True, allow_blank=True)
    count = serializers.IntegerField(
        source="event.data.count",
        help_text="Failed records; 0 for one that failed again, and was counted before.",
    )
    first_position = serializers.SerializerMethodField()
    last_position = serializers.SerializerMethodField()
    response = serializers.CharField(source="event.data.response.value")
    failure = FailureField(source="event.data.failure")

    def get_task(self, stored: StoredEvent) -> str:
        """Return the digest of the run's task."""
        run, data = stored.event.run, stored.event.data
        key: str | None = getattr(data, "task", None)
        return "" if run is None else task_id(stored.application, run, key).digest

    def get_first_position(self, stored: StoredEvent) -> int | None:
        """Return the position of the only record, or of the first one."""
        data = stored.event.data
        value: int | None = getattr(data, "first_position", getattr(data, "position", None))
        return value

    def get_last_position(self, stored: StoredEvent) -> int | None:
        """Return the position of the only record, or of the last one."""
        data = stored.event.data
        value: int | None = getattr(data, "last_position", getattr(data, "position", None))
        return value


class FailurePage(serializers.Serializer[Any]):
    """Some failures, and the cursor to continue with."""

    results = Failure(many=True, source="rows")
    next = serializers.CharField(allow_null=True, help_text="Null: nothing more is meant.")
    searched_until = serializers.DateTimeField(
        allow_null=True,
        help_text="Of a page that ends before it is full, with a `next`: when what was looked at"
        " last occurred.",
    )


class Mute(serializers.Serializer[Any]):
    """What ends the mute of an error group."""

    until = serializers.DateTimeField(allow_null=True)
    failures = serializers.IntegerField(allow_null=True)
    period_seconds = serializers.IntegerField(allow_null=True)
    window_start = serializers.DateTimeField(allow_null=True)
    window_count = serializers.IntegerField(help_text="Failed records of that period so far.")


class ErrorGroup(serializers.Serializer[Any]):
    """Failed records of an application with one cause."""

    application = serializers.CharField()
    fingerprint = serializers.CharField()
    pipeline = serializers.CharField(allow_null=True)
    stage = serializers.CharField()
    exception_class = serializers.CharField(help_text="Of the first failure.")
    condition = serializers.CharField(allow_null=True)
    other_classes = serializers.ListField(
        child=serializers.CharField(),
        allow_null=True,
        help_text="Others that failures with this condition came in; null: not known.",
    )
    message = serializers.CharField(help_text="Of the newest example.")
    frame = serializers.CharField(allow_null=True)
    count = serializers.IntegerField()
    estimated = serializers.IntegerField(help_text="The part of `count` split by estimate.")
    first_seen = serializers.DateTimeField(allow_null=True)
    last_seen = serializers.DateTimeField(allow_null=True)
    status = serializers.ChoiceField(choices(GroupStatus), source="status.value")
    since = serializers.DateTimeField(allow_null=True, help_text="Of the status.")
    actor = serializers.CharField(allow_null=True, help_text="Whose act it was; null: by itself.")
    reason = serializers.CharField(allow_null=True)
    mute = Mute(allow_null=True)
    recurred = serializers.BooleanField(help_text="It failed again after it was resolved.")
    notes = serializers.IntegerField()
    sequence = serializers.IntegerField()


class Delivery(serializers.Serializer[Any]):
    """The state of a command at one instance."""

    instance = serializers.UUIDField()
    status = serializers.ChoiceField(choices(CommandStatus), source="status.value")
    delivered_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField(allow_null=True)


class Command(serializers.Serializer[Any]):
    """A command and its result."""

    id = serializers.UUIDField()
    kind = serializers.ChoiceField(choices(CommandKind), source="kind.value")
    application = serializers.CharField()
    task = serializers.CharField(source="task.digest", allow_null=True, default=None)
    actor = serializers.CharField()
    reason = serializers.CharField(allow_null=True)
    status = serializers.ChoiceField(choices(CommandStatus), source="status.value")
    position = serializers.IntegerField(allow_null=True, help_text="Where the task was held.")
    target = serializers.IntegerField(
        allow_null=True, help_text="Of RESUME_AT: where the task resumes."
    )
    pipeline = serializers.CharField(
        allow_null=True, help_text="Of SET_POLICY: in every run of this pipeline,"
    )
    stage = serializers.CharField(allow_null=True, help_text="failures of this stage")
    answer = serializers.CharField(
        allow_null=True, help_text="are answered so; null: as in the code."
    )
    issued_at = serializers.DateTimeField()
    delivered_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    expires_at = serializers.DateTimeField()
    outcome = serializers.CharField(allow_null=True)
    deliveries = Delivery(many=True)
    sequence = serializers.IntegerField()


class NewCommand(serializers.Serializer[Any]):
    """The fields of a new command: `task` if it is about one, else `application`."""

    id = serializers.UUIDField(
        required=False, help_text="Repeating it has no further effect. Or an Idempotency-Key."
    )
    kind = Choice(choices(CommandKind))
    application = serializers.CharField(required=False)
    task = serializers.CharField(required=False, help_text="The id of the task.")
    position = serializers.IntegerField(
        required=False,
        min_value=-(2**63),
        max_value=2**63 - 1,
        help_text="Of RESUME_AT: where the task goes on; what it holds before that is skipped.",
    )
    pipeline = serializers.CharField(required=False, help_text="Of SET_POLICY.")
    stage = serializers.CharField(
        required=False,
        help_text="Of SET_POLICY: source, deserialize, process:<name> or produce.",
    )
    answer = Choice(
        get_args(StageAnswer),
        required=False,
        allow_null=True,
        help_text="Of SET_POLICY: the answer to all failures of the stage; null: as in the code.",
    )
    reason = serializers.CharField(
        required=False,
        allow_null=True,
        max_length=1000,
        help_text="Required for SKIP_RECORD, RESUME_AT, SET_POLICY and SHUT_DOWN_APPLICATION.",
    )


class Problem(serializers.Serializer[Any]):
    """An error response."""

    detail = serializers.CharField()
    field = serializers.CharField(required=False, help_text="400: what was wrong,")
    value = serializers.JSONField(required=False, help_text="what it was,")
    allowed = serializers.CharField(required=False, help_text="and what it may be.")
    state = serializers.CharField(required=False, help_text="409: the state that forbids it,")
    oldest = serializers.DateTimeField(
        required=False, allow_null=True, help_text="410: the oldest time that is known,"
    )
    position = serializers.IntegerField(required=False, help_text="and where in the log.")

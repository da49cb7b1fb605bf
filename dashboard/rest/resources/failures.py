"""REST: failed records: lists, a search, one with its history, and its masked fields."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import actions, queries
from arrester.dashboard.rest import base
from arrester.dashboard.rest.event_feed.page import StoredEventRowSerializer
from arrester.dashboard.rest.problems import PROBLEMS
from arrester.dashboard.rest.struct_serializers import StructSerializer
from arrester.domain.events import Failure, FailuresCounted, RecordFailed, StoredEvent
from arrester.domain.identity.names import task_id


class FailureQuerySerializer(base.PageQuerySerializer):
    class Meta:
        struct = queries.FailureFilter
        exclude = ("groups",)


class FailureFieldSerializer(StructSerializer):
    """The cause of a failure."""

    class Meta:
        struct = Failure
        fields = (
            *("stage", "exception_class", "condition", "message", "fingerprint", "frame"),
            *("attempts", "inner_class", "inner_condition", "field"),
        )


class RowFailureSerializer(FailureFieldSerializer):
    """The cause of a row of failures."""

    message = serializers.CharField(
        allow_null=True, help_text="Of the failed record; null: the records were only counted."
    )

    def to_representation(self, data: RecordFailed | FailuresCounted) -> dict[str, Any]:
        """Return the failure; counted ones have the message of an example, which is left out."""
        shown = super().to_representation(data.failure)
        return shown | {"message": None} if isinstance(data, FailuresCounted) else shown


class FailureSerializer(serializers.Serializer[Any]):
    """One failed record reported in full, or several that were only counted.

    The sum of `count` over all rows of a filter is exact: each failed record is in one row.
    """

    application = serializers.CharField()
    sequence = serializers.IntegerField(help_text="The log position of the event.")
    type = serializers.ChoiceField(["RecordFailed", "FailuresCounted"], source="event.type")
    occurred_at = serializers.DateTimeField(source="event.occurred_at")
    received_at = serializers.DateTimeField()
    pipeline = serializers.CharField(source="event.run.pipeline")
    checkpoint = serializers.CharField(source="event.run.checkpoint")
    epoch = serializers.IntegerField(source="event.run.epoch")
    task = serializers.SerializerMethodField(help_text="The id of the task.")
    key = serializers.CharField(source="event.data.task", allow_null=True, allow_blank=True)
    instance = serializers.UUIDField(source="event.instance", allow_null=True)
    record_key = serializers.CharField(
        source="event.data.key",
        default=None,
        allow_null=True,
        help_text="The key of the record; null: it has none, or it was only counted.",
    )
    count = serializers.IntegerField(
        source="event.data.count",
        help_text="Failed records; 0 for a record that failed again after it was counted.",
    )
    first_position = serializers.SerializerMethodField()
    last_position = serializers.SerializerMethodField()
    response = serializers.CharField(source="event.data.response.value")
    failure = RowFailureSerializer(source="event.data")

    def get_task(self, stored: StoredEvent) -> str:
        """Return the digest of the run's task."""
        run, data = stored.event.run, stored.event.data
        key: str | None = getattr(data, "task", None)
        return "" if run is None else task_id(stored.application, run, key).digest

    def get_first_position(self, stored: StoredEvent) -> int | None:
        """Return the position of the only record, or of the first one."""
        return _position(stored, "first_position")

    def get_last_position(self, stored: StoredEvent) -> int | None:
        """Return the position of the only record, or of the last one."""
        return _position(stored, "last_position")


def _position(stored: StoredEvent, name: str) -> int | None:
    data = stored.event.data
    value: int | None = getattr(data, name, getattr(data, "position", None))
    return value


class FailurePageSerializer(serializers.Serializer[Any]):
    """Some failures, and the cursor to continue with."""

    results = FailureSerializer(many=True, source="rows")
    next = serializers.CharField(allow_null=True, help_text="Null: the list ends here.")
    oldest_searched_at = serializers.DateTimeField(
        source="searched_until",
        allow_null=True,
        help_text="Of a page that is not full and has a `next`: the time of occurrence of the last"
        " failure that was searched.",
    )


class FailuresView(base.ListView):
    """Failed records."""

    query = FailureQuerySerializer
    page = FailurePageSerializer

    def find(self, wanted: queries.FailureFilter, **page: Any) -> queries.Page[StoredEvent]:
        """List failures, newest first.

        Each row counts `count` failed records; their sum over all pages is exact. A page reads
        a bounded part of the history: if few rows match, it may be short or empty and still have a
        `next`.
        """
        check_cause(wanted)
        return queries.failures(wanted, **page)


def check_cause(wanted: queries.FailureFilter | queries.DeadLetterFilter) -> None:
    """Raise InvalidValue for a class without its package, NotFound for an unknown error group."""
    if wanted.exception_class is not None:
        queries.check_class(wanted.exception_class)
    if wanted.fingerprint is not None:
        queries.check_group(wanted.fingerprint, wanted.application)


RECORD = "The source row without masked fields; null: it was not reported, or is erased."


class RecordQuerySerializer(base.PageQuerySerializer):
    q = serializers.CharField(
        help_text='Words, "words in this order" in quotes, and field:value with the exact value;'
        " all must match. A name with spaces is in quotes, too. Fields are those of the record,"
        " key, task, position and message."
    )

    class Meta:
        struct = queries.RecordFilter


class FoundRecordSerializer(serializers.Serializer[Any]):
    """A failure of a record that matches."""

    event = FailureSerializer(source="failure")
    matches = serializers.ListField(
        child=serializers.CharField(), help_text="The fields that match, nested ones by path."
    )
    outcome = serializers.ChoiceField(
        [each.value for each in queries.RecordOutcome], help_text="What became of the record."
    )
    record = serializers.JSONField(
        source="failure.event.body.record",
        default=None,
        help_text=RECORD,
    )


class CountedDeadLetterSerializer(StructSerializer):
    """A dead letter whose record was only counted."""

    status = serializers.CharField(source="status.name")

    class Meta:
        struct = queries.DeadLetter
        fields = ("application", "id", "task.pipeline", "task", "task.key", "position", "status")
        sources = {"task": "task.digest"}


class FoundRecordsSerializer(serializers.Serializer[Any]):
    """Some matching failures, and the cursor to continue with."""

    results = FoundRecordSerializer(many=True, source="rows")
    next = serializers.CharField(allow_null=True, help_text="Null: the list ends here.")
    oldest_searched_at = serializers.DateTimeField(
        source="searched_until",
        allow_null=True,
        help_text="Of a page that is not full and has a `next`: the time up to which it searched.",
    )
    dead_letters = CountedDeadLetterSerializer(
        many=True,
        help_text="Dead letters at the position of `q` whose records were only counted: the log"
        " lacks their records. Only on the first page.",
    )
    not_indexed = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="By application: its newest events that the index does not have yet.",
    )


class RecordsView(base.ListView):
    """Failed records by what they have."""

    query = RecordQuerySerializer
    page = FoundRecordsSerializer

    def find(self, wanted: queries.RecordFilter, **page: Any) -> queries.FoundRecords:
        """Find failed records that were reported in full, newest first.

        Masked and erased values match nothing.
        """
        return queries.find_records(wanted, **page)


class RecordHistorySerializer(StructSerializer):
    """A failed record, and all that happened to it."""

    event = FailureSerializer(source="failure")
    record = serializers.JSONField(
        source="failure.event.body.record", default=None, help_text=RECORD
    )
    columns = serializers.JSONField(
        source="failure.event.body.columns",
        default=None,
        help_text="The columns that native steps had made of it, as the failed step received them;"
        " null: there are none, or those steps read a masked field.",
    )
    dead_letter = serializers.CharField(
        source="dead_letter.id", default=None, help_text="The id of its dead letter."
    )
    history = StoredEventRowSerializer(
        many=True, source="events", help_text="The events about it, newest first."
    )

    class Meta:
        struct = queries.RecordHistory
        fields = (
            "event",
            "record",
            "outcome",
            "dead_letter",
            "history",
            "older_sequence",
            "newer_sequence",
        )
        sources = {"older_sequence": "older", "newer_sequence": "newer"}
        help = {
            "outcome": "What became of the record.",
            "older_sequence": "The log position of the failed record of the task before it.",
            "newer_sequence": "The log position of the next failed record of the task.",
        }


class OneRecordView(base.RestView):
    """One failed record."""

    @extend_schema(responses={200: RecordHistorySerializer} | PROBLEMS)
    def get(self, request: Request, application: str, sequence: int) -> Response:
        """Return a record by the position of one of its failures in the log."""
        found = queries.record_history(application, sequence)
        return Response(RecordHistorySerializer(found).data)


class RevealSerializer(serializers.Serializer[Any]):
    """Why masked fields are revealed."""

    reason = serializers.CharField(max_length=1000)


class MaskedFieldSerializer(serializers.Serializer[Any]):
    """A masked field and its value."""

    path = serializers.CharField()
    value = serializers.JSONField(allow_null=True)


class MaskedFieldsSerializer(serializers.Serializer[Any]):
    """The masked fields of a failed record."""

    masked = MaskedFieldSerializer(many=True)
    omitted = serializers.IntegerField(
        help_text="Further fields that exceeded the size limit of a record."
    )


class RevealView(base.RestView):
    """The masked fields of a failed record."""

    @extend_schema(
        request=RevealSerializer,
        responses={200: MaskedFieldsSerializer} | PROBLEMS,
    )
    def post(self, request: Request, application: str, sequence: int) -> Response:
        """Reveal the masked fields of a failed record; the audit records the reason."""
        wanted = base.values(RevealSerializer, request.data)
        actor = str(request.user.get_username())
        found = actions.reveal(application, sequence, actor=actor, reason=wanted["reason"])
        masked = [{"path": each.path, "value": each.value} for each in found.fields]
        return Response({"masked": masked, "omitted": found.omitted})

"""REST: dead letters one by one, and their totals."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import actions, dead_letter_records, queries
from arrester.controlplane.models import DeadLetterStatus
from arrester.dashboard.rest import base
from arrester.dashboard.rest.failures import CauseQuerySerializer


class DeadLetterTotalsQuerySerializer(CauseQuerySerializer):
    """Filters of totals of dead letters."""

    by = base.ListedChoiceField(["group", "task"], required=False, default="group")


class DeadLetterQuerySerializer(CauseQuerySerializer):
    """Filters of the list of dead letters; times are of the decision, `until` is exclusive."""

    status = base.ListedChoiceField(
        queries.DEAD_LETTER_STATUSES, required=False, help_text="open: WAITING or FAILED_AGAIN."
    )
    since = base.MomentField(required=False)
    until = base.MomentField(required=False)


class DeadLetterCauseSerializer(serializers.Serializer[Any]):
    """The error group of a dead letter."""

    fingerprint = serializers.CharField()
    stage = serializers.CharField()
    exception_class = serializers.CharField()


class TotalCauseSerializer(DeadLetterCauseSerializer):
    """The error group of several dead letters."""

    message = serializers.CharField(help_text="Of the newest example of the group.")


class DeadLetterSerializer(serializers.Serializer[Any]):
    """A skipped record that was written as a dead letter."""

    application = serializers.CharField()
    id = serializers.CharField(
        help_text="At the destination, too; the same for the same record in each replay and run."
    )
    pipeline = serializers.CharField(source="task.pipeline")
    checkpoint = serializers.CharField(source="task.checkpoint")
    task = serializers.CharField(source="task.digest", help_text="The id of the task.")
    key = serializers.CharField(source="task.key", allow_null=True)
    position = serializers.IntegerField(allow_null=True)
    size = serializers.IntegerField(
        allow_null=True, help_text="Of the record as JSON, in bytes; null: not known."
    )
    occurred_at = serializers.DateTimeField()
    sequence = serializers.IntegerField(help_text="The newest event that reported it.")
    first_sequence = serializers.IntegerField(help_text="The first event that reported it.")
    status = serializers.ChoiceField(
        [each.name for each in DeadLetterStatus],
        source="status.name",
        help_text="REDRIVEN: its task holds it again. PROCESSED: it has passed the pipeline since."
        " FAILED_AGAIN: reported once more after that; it waits.",
    )
    redrive = serializers.UUIDField(
        allow_null=True, help_text="The redrive of the server that took it last."
    )
    redrives = serializers.IntegerField(help_text="How often it was redriven.")
    cause = DeadLetterCauseSerializer(
        source="group", allow_null=True, help_text="Null: it did not fail, or it is not known."
    )
    message = serializers.CharField(
        allow_null=True,
        help_text="Of the record's own failure; null: it did not fail, or it was counted only.",
    )
    place = serializers.CharField(help_text="The destination.")
    format = serializers.CharField()
    actor = serializers.CharField(allow_null=True, help_text="Null: skipped by a handler.")
    reason = serializers.CharField(allow_null=True)


class DeadLetterTotalSerializer(serializers.Serializer[Any]):
    """The number of dead letters of an error group, or of a task."""

    application = serializers.CharField()
    count = serializers.IntegerField()
    waiting = serializers.IntegerField(help_text="Those that are WAITING or FAILED_AGAIN.")
    cause = TotalCauseSerializer(
        source="group", allow_null=True, help_text="Null: by task, or without a known cause."
    )
    pipeline = serializers.SerializerMethodField(help_text="Null: by group.")
    task = serializers.SerializerMethodField(help_text="The id of the task; null: by group.")
    key = serializers.SerializerMethodField()

    def get_pipeline(self, total: queries.DeadLetterTotal) -> str | None:
        """Return the pipeline of the task."""
        return None if total.task is None else total.task.pipeline

    def get_task(self, total: queries.DeadLetterTotal) -> str | None:
        """Return the id of the task."""
        return None if total.task is None else total.task.digest

    def get_key(self, total: queries.DeadLetterTotal) -> str | None:
        """Return the key of the task."""
        return None if total.task is None else total.task.key


class NewDiscardSerializer(serializers.Serializer[Any]):
    """Which dead letters to discard: some ids, or the waiting ones that match all filters."""

    id = serializers.UUIDField(required=False, help_text=base.AN_ID)
    application = serializers.CharField()
    reason = serializers.CharField(max_length=1000)
    ids = serializers.ListField(
        child=serializers.CharField(), required=False, max_length=actions.MAX_IDS
    )
    pipeline = serializers.CharField(required=False)
    task = base.TaskIdField()
    stage = serializers.CharField(required=False)
    exception_class = serializers.CharField(
        required=False, help_text="The full name, with its package."
    )
    fingerprint = serializers.CharField(required=False)
    status = base.ListedChoiceField(queries.DEAD_LETTER_STATUSES, required=False)
    since = base.MomentField(required=False)
    until = base.MomentField(required=False)


class DiscardedSerializer(serializers.Serializer[Any]):
    """The numbers of dead letters."""

    discarded = serializers.IntegerField()
    unchanged = serializers.IntegerField(
        help_text="Of `ids`: those that do not wait, or are not known."
    )
    more = serializers.BooleanField(
        help_text=f"More than {actions.MAX_DISCARDED:,} matched: the oldest were discarded."
    )


class DeadLetterListView(base.RestView):
    """Dead letters."""

    @base.lists(DeadLetterQuerySerializer, DeadLetterSerializer)
    def get(self, request: Request) -> Response:
        """List dead letters one by one, newest first: cause, destination, who skipped them."""
        wanted, page = _wanted(DeadLetterQuerySerializer, request)
        found = queries.dead_letters(queries.DeadLetterFilter(**wanted), **page)
        return base.paged(found, DeadLetterSerializer)


class DeadLetterTotalsView(base.RestView):
    """Totals of dead letters."""

    @base.lists(DeadLetterTotalsQuerySerializer, DeadLetterTotalSerializer)
    def get(self, request: Request) -> Response:
        """List the numbers of dead letters by error group or by task, greatest first."""
        wanted, page = _wanted(DeadLetterTotalsQuerySerializer, request)
        by = wanted.pop("by")
        found = queries.dead_letter_totals(queries.DeadLetterFilter(**wanted), by=by, **page)
        return base.paged(found, DeadLetterTotalSerializer)


class DiscardView(base.RestView):
    """Discard dead letters."""

    @base.acts(NewDiscardSerializer, DiscardedSerializer)
    def post(self, request: Request) -> Response:
        """Discard dead letters of an application that wait: the server does not redrive them.

        Others are unchanged. At least one filter or `ids` is required.
        """
        given = base.values(NewDiscardSerializer, request.data)
        id = base.act_id(request, given)
        given.pop("id", None)
        application, reason, ids = (
            given.pop("application"),
            given.pop("reason"),
            given.pop("ids", None),
        )
        _check_names(given | {"application": application})
        done = actions.discard_dead_letters(
            application,
            wanted=queries.DeadLetterFilter(**given),
            ids=ids,
            actor=request.user.get_username(),
            reason=reason,
            id=id,
        )
        return Response(DiscardedSerializer(done).data)


class OneDeadLetterView(base.RestView):
    """One dead letter."""

    @extend_schema(
        operation_id="api_dead_letter", responses={200: DeadLetterSerializer} | base.PROBLEMS
    )
    def get(self, request: Request, application: str, id: str) -> Response:
        """Return a dead letter."""
        return Response(DeadLetterSerializer(queries.dead_letter(application, id)).data)


class RecordSerializer(serializers.Serializer[Any]):
    """The record of a dead letter, read from its file or topic."""

    state = serializers.ChoiceField(base.choices(dead_letter_records.State))
    reason = serializers.CharField(help_text="FAILED: why it cannot be read, and what to do.")
    record = serializers.JSONField(
        source="body.record", allow_null=True, default=None, help_text="Without masked fields."
    )
    redacted = serializers.ListField(
        source="body.redacted", child=serializers.CharField(), default=list
    )
    cut_from = serializers.IntegerField(
        source="body.cut_from",
        allow_null=True,
        default=None,
        help_text="The size in bytes of a record that was cut; else null.",
    )


class RecordView(base.RestView):
    """The record of a dead letter."""

    @extend_schema(
        operation_id="api_dead_letter_record",
        responses={200: RecordSerializer, 202: RecordSerializer} | base.PROBLEMS,
    )
    def get(self, request: Request, application: str, id: str) -> Response:
        """Return the record of a dead letter; 202 while a worker reads it: request it again."""
        found = queries.dead_letter(application, id)
        failure = queries.failure_of_dead_letter(found)
        if failure is not None and failure.event.body is not None:
            ready = dead_letter_records.State.READY
            record = dead_letter_records.Record(state=ready, body=failure.event.body)
        else:
            record = dead_letter_records.request(found)
        pending = record.state is dead_letter_records.State.PENDING
        return Response(RecordSerializer(record).data, status=202 if pending else 200)


def _wanted(form: base.SerializerClass, request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
    wanted, page = base.list_values(form, request)
    _check_names(wanted)
    return wanted, page


def _check_names(wanted: dict[str, Any]) -> None:
    if "exception_class" in wanted:
        queries.check_class(wanted["exception_class"])
    if "fingerprint" in wanted:
        queries.check_group(wanted["fingerprint"], wanted.get("application"))

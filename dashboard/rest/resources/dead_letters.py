"""REST: dead letters one by one, and their totals."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import actions, dead_letter_records, queries
from arrester.controlplane.models import DeadLetterStatus
from arrester.dashboard.rest import base, field_types
from arrester.dashboard.rest.problems import PROBLEMS
from arrester.dashboard.rest.resources.failures import check_cause
from arrester.dashboard.rest.struct_serializers import FilterSerializer, StructSerializer
from arrester.domain.state.states import GroupState


class DeadLetterTotalsQuerySerializer(base.PageQuerySerializer):
    """Filters of totals of dead letters."""

    by = field_types.ListedChoiceField(["group", "task"], required=False, default="group")

    class Meta:
        struct = queries.DeadLetterFilter
        exclude = ("status", "since", "until")


class DeadLetterQuerySerializer(base.PageQuerySerializer):
    status = field_types.ListedChoiceField(
        queries.DEAD_LETTER_STATUSES, required=False, help_text="open: WAITING or FAILED_AGAIN."
    )

    class Meta:
        struct = queries.DeadLetterFilter


class DeadLetterCauseSerializer(StructSerializer):
    """The error group of a dead letter."""

    class Meta:
        struct = GroupState
        fields = ("fingerprint", "stage", "exception_class")


class TotalCauseSerializer(StructSerializer):
    """The error group of several dead letters."""

    class Meta:
        struct = GroupState
        fields = ("fingerprint", "stage", "exception_class", "message")
        help = {"message": "Of the newest example of the group."}


class DeadLetterSerializer(StructSerializer):
    """A skipped record that was written as a dead letter."""

    status = serializers.ChoiceField(
        [each.name for each in DeadLetterStatus],
        source="status.name",
        help_text="REDRIVEN: its task holds it again. PROCESSED: it has passed the pipeline since."
        " FAILED_AGAIN: reported once more after that; it waits.",
    )
    cause = DeadLetterCauseSerializer(
        source="group", allow_null=True, help_text="Null: it did not fail, or it is not known."
    )
    owner = serializers.SerializerMethodField(
        help_text="The person or team that takes care of it; null: none."
    )

    class Meta:
        struct = queries.DeadLetter
        fields = (
            *("application", "id", "task.pipeline", "task.checkpoint", "task", "task.key"),
            *("position", "size", "occurred_at", "sequence", "first_sequence", "status"),
            *("redrive", "redrives", "cause", "message", "place", "format", "actor", "reason"),
        )
        sources = {"task": "task.digest"}

    def get_owner(self, row: queries.DeadLetter) -> str | None:
        """Return the owner of the dead letter."""
        return base.owners_of(self).of(row.application, row.task.pipeline, row.group)


class DeadLetterTotalSerializer(StructSerializer):
    cause = TotalCauseSerializer(
        source="group", allow_null=True, help_text="Null: by task, or without a known cause."
    )

    class Meta:
        struct = queries.DeadLetterTotal
        fields = ("application", "count", "waiting", "cause", "task.pipeline", "task", "task.key")
        sources = {"task": "task.digest"}
        help = {
            "pipeline": "Null: by group.",
            "task": "The id of the task; null: by group.",
            "key": "Null: by group, or a task without a key.",
        }


class NewDiscardSerializer(FilterSerializer):
    """Which dead letters to discard: some ids, or the waiting ones that match all filters."""

    id = serializers.UUIDField(required=False, help_text=base.AN_ID)
    application = serializers.CharField()
    reason = serializers.CharField(max_length=1000)
    dry_run = serializers.BooleanField(
        default=False, help_text="Return what would be discarded, and discard nothing."
    )
    ids = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        min_length=1,
        max_length=actions.MAX_IDS,
        error_messages=dict.fromkeys(("min_length", "max_length"), f"1 to {actions.MAX_IDS:,} ids"),
    )
    status = field_types.ListedChoiceField(queries.DEAD_LETTER_STATUSES, required=False)

    class Meta:
        struct = queries.DeadLetterFilter
        fields = ("id", "application", "reason", "dry_run", "ids", *struct.__struct_fields__)


class DiscardedSerializer(StructSerializer):
    class Meta:
        struct = actions.Discarded
        fields = ("discarded", "unchanged", "more", "afterwards")


class DeadLetterListView(base.ListView):
    """Dead letters."""

    query = DeadLetterQuerySerializer
    row = DeadLetterSerializer

    def find(
        self, wanted: queries.DeadLetterFilter, **page: Any
    ) -> queries.Page[queries.DeadLetter]:
        """List dead letters one by one, newest first: cause, destination, who skipped them."""
        check_cause(wanted)
        return queries.dead_letters(wanted, **page)


class DeadLetterTotalsView(base.ListView):
    """Totals of dead letters."""

    query = DeadLetterTotalsQuerySerializer
    row = DeadLetterTotalSerializer

    def find(
        self, wanted: queries.DeadLetterFilter, *, by: str, **page: Any
    ) -> queries.Page[queries.DeadLetterTotal]:
        """List the numbers of dead letters by error group or by task, greatest first."""
        check_cause(wanted)
        return queries.dead_letter_totals(wanted, by=by, **page)


class DiscardView(base.RestView):
    """Discard dead letters."""

    @base.acts(NewDiscardSerializer, DiscardedSerializer)
    def post(self, request: Request) -> Response:
        """Discard dead letters of an application that wait: the server does not redrive them.

        Others are unchanged. At least one filter or `ids` is required. With `dry_run` nothing is
        discarded.
        """
        given = base.values(NewDiscardSerializer, request.data)
        wanted = base.pop_filter(NewDiscardSerializer, given)
        check_cause(wanted)
        if given["dry_run"]:
            plan = actions.plan_discard(wanted.application, wanted=wanted, ids=given.get("ids"))
            return Response(DiscardedSerializer(plan).data)
        done = actions.discard_dead_letters(
            wanted.application,
            wanted=wanted,
            ids=given.get("ids"),
            actor=request.user.get_username(),
            reason=given["reason"],
            id=base.act_id(request, given),
        )
        return Response(DiscardedSerializer(done).data)


class OneDeadLetterView(base.RestView):
    """One dead letter."""

    @extend_schema(responses={200: DeadLetterSerializer} | PROBLEMS)
    def get(self, request: Request, application: str, id: str) -> Response:
        """Return a dead letter."""
        return Response(DeadLetterSerializer(queries.dead_letter(application, id)).data)


class RecordSerializer(serializers.Serializer[Any]):
    """The record of a dead letter, read from its file or topic."""

    state = serializers.ChoiceField(field_types.choices(dead_letter_records.State))
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
        responses={200: RecordSerializer, 202: RecordSerializer} | PROBLEMS,
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
        shown = Response(RecordSerializer(record).data)
        if not pending:
            return shown
        shown.status_code, shown["Retry-After"] = 202, "1"
        return base.at(shown, "api-dead-letter-record", application, id)

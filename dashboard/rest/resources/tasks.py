"""REST: tasks and their held records; resume many tasks at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from msgspec.structs import replace
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import actions, queries
from arrester.dashboard.rest import base, field_types
from arrester.dashboard.rest.checkpoints import (
    LIVE,
    CheckpointsField,
    LastRunEndedField,
    LiveField,
)
from arrester.dashboard.rest.command_serializers import CommandSerializer
from arrester.dashboard.rest.problems import PAST
from arrester.dashboard.rest.resources.failures import FailureFieldSerializer
from arrester.dashboard.rest.struct_serializers import StructSerializer
from arrester.domain.errors import InvalidValue
from arrester.domain.state.states import Counters, TaskState

#: The orders that have another name in queries.
_NAMES = {queries.LATEST_STOP: "-status_changed_at"}


class TaskQuerySerializer(base.ApplicationQuerySerializer, base.AsOfQuerySerializer):
    status = field_types.ListedChoiceField(
        queries.TASK_STATES,
        required=False,
        help_text="NO_RUN: RUNNING ones whose checkpoint no run uses; they are not among RUNNING.",
    )
    checkpoints = CheckpointsField()
    sort = field_types.SortField(
        {_NAMES.get(order, order): order for order in queries.TASK_SORTS},
        default=_NAMES[queries.LATEST_STOP],
        help_text="`-`: the largest first; `urgency`: DEAD, then PAUSED ones by age, then others."
        " With `as_of` only the default.",
    )

    class Meta:
        struct = queries.TaskFilter
        exclude = ("cause", "key", "live")


class CountersSerializer(StructSerializer):
    """The counters of a task, since creation."""

    class Meta:
        struct = Counters
        fields = (
            *("record_failures", "records_skipped", "total_retries", "failures_logged"),
            *("dlq_records_produced", "dlq_produce_failures", "last_failure_at"),
        )
        sources = {"last_failure_at": "last_failure_timestamp"}


class TaskSerializer(StructSerializer):
    """A task: one partition, or one key, of a pipeline on a checkpoint."""

    pause_seconds_left = serializers.SerializerMethodField(
        help_text="The seconds until then, 0 if it is over; null without an end."
    )
    failure = FailureFieldSerializer(allow_null=True)
    counters = CountersSerializer()
    live = LiveField(source="id")
    last_run_ended_at = LastRunEndedField(source="id")
    owner = serializers.SerializerMethodField(
        help_text="The person or team that takes care of it, now; null: none."
    )

    class Meta:
        struct = TaskState
        fields = (
            *("id", "name", "id.application", "id.pipeline", "id.checkpoint", "id.key", "status"),
            *("status_changed_at", "first_stopped_at", "pause_ends_at", "pause_seconds_left"),
            *("position", "held"),
            *("failed", "failure", "counters", "sequence"),
        )
        sources = {
            "id": "id.digest",
            "name": "id.printed",
            "status_changed_at": "since",
            "first_stopped_at": "first_stopped",
            "pause_ends_at": "paused_until",
        }
        help = {
            "id": "32 hexadecimal digits; never changes.",
            "name": "For people; not unique.",
        }

    def get_owner(self, task: TaskState) -> str | None:
        """Return the owner of the task: the context has those of all rows."""
        owner: str | None = self.context["owner_of"].get(task.id.digest)
        return owner

    def get_pause_seconds_left(self, task: TaskState) -> int | None:
        """Return the seconds until the server resumes the task."""
        until = task.paused_until
        return None if until is None else max(0, int((until - timezone.now()).total_seconds()))


class DrainSerializer(StructSerializer):
    class Meta:
        struct = queries.Drain
        fields = ("records_per_second", "done_at")


class OneTaskSerializer(TaskSerializer):
    """A task, and how fast it processes its held records."""

    drain = serializers.SerializerMethodField()

    @extend_schema_field(DrainSerializer(allow_null=True))
    def get_drain(self, task: TaskState) -> Any:
        """Return how fast held records are processed now; None if it is not known."""
        drain = None if self.context.get("as_of") else queries.drain(task)
        return None if drain is None else DrainSerializer(drain).data


class NewResumeSerializer(serializers.Serializer[Any]):
    """The tasks to resume: `tasks`, or the PAUSED ones of an `application`, or of one cause."""

    id = serializers.UUIDField(required=False, help_text=base.AN_ID)
    tasks = serializers.ListField(
        child=serializers.CharField(), required=False, max_length=500, help_text="Ids of tasks."
    )
    application = serializers.CharField(required=False)
    fingerprint = serializers.CharField(required=False)
    reason = serializers.CharField(required=False, allow_null=True, max_length=1000)
    dry_run = serializers.BooleanField(required=False, default=False)


class NewDismissalSerializer(serializers.Serializer[Any]):
    """The tasks to dismiss, and why."""

    id = serializers.UUIDField(required=False, help_text=base.AN_ID)
    tasks = serializers.ListField(
        child=serializers.CharField(), min_length=1, max_length=500, help_text="Ids of tasks."
    )
    reason = serializers.CharField(max_length=1000)


class ResumedSerializer(StructSerializer):
    command = CommandSerializer(allow_null=True)

    class Meta:
        struct = actions.TaskResult
        fields = ("task", "command", "refused")
        sources = {"task": "task.digest"}


class ResumedManySerializer(serializers.Serializer[Any]):
    """The results for some tasks, and the number of further PAUSED ones that match."""

    results = ResumedSerializer(many=True)
    left = serializers.IntegerField()


class DismissedManySerializer(serializers.Serializer[Any]):
    """The results for some tasks."""

    results = ResumedSerializer(many=True)


class TasksView(base.ListView):
    """Tasks, from their first failure on."""

    query = TaskQuerySerializer
    row = TaskSerializer

    def find(
        self,
        wanted: queries.TaskFilter,
        *,
        checkpoints: str,
        sort: str,
        as_of: queries.AsOf | None = None,
        **page: Any,
    ) -> queries.Page[TaskState]:
        """List tasks, by default of live checkpoints: the newest of each pipeline.

        A task that never failed is RUNNING and has no row.
        """
        wanted = replace(wanted, live=checkpoints == LIVE)
        if as_of is None:
            return queries.tasks(wanted, sort=sort, **page)
        if sort != queries.LATEST_STOP:
            raise InvalidValue("sort", sort, "-status_changed_at together with as_of")
        return queries.as_of_state.tasks(wanted, as_of, **page)

    def context(self, rows: Sequence[TaskState], as_of: queries.AsOf | None) -> dict[str, Any]:
        """Return the checkpoints of the tasks."""
        return _context(rows, as_of)


def _context(tasks: Sequence[TaskState], when: queries.AsOf | None = None) -> dict[str, Any]:
    """Return the context of the serializer of some tasks, now or as of then."""
    applications = {task.id.application for task in tasks}
    return {
        "checkpoints": queries.as_of_state.checkpoints(applications, when)
        if when
        else queries.checkpoints(applications),
        "owner_of": queries.owners_of_tasks(tasks),
    }


class OneTaskView(base.RestView):
    """One task."""

    @extend_schema(parameters=[base.AsOfQuerySerializer], responses={200: OneTaskSerializer} | PAST)
    def get(self, request: Request, digest: str) -> Response:
        """Return one task by its id."""
        when = base.pop_as_of(base.values(base.AsOfQuerySerializer, request.query_params))
        detail = queries.as_of_state.task(digest, when) if when else queries.task(digest)
        context = _context([detail.state], when) | {"as_of": when}
        return Response(OneTaskSerializer(detail.state, context=context).data)


class HeldView(base.ListView):
    """Tasks that hold records."""

    query = base.ApplicationQuerySerializer
    row = TaskSerializer

    def find(self, **wanted: Any) -> queries.Page[TaskState]:
        """List the tasks of live checkpoints that hold records, most records first."""
        return queries.held(**wanted)

    def context(self, rows: Sequence[TaskState], as_of: queries.AsOf | None) -> dict[str, Any]:
        """Return the checkpoints of the tasks."""
        return _context(rows, as_of)


class ResumeManyView(base.RestView):
    """Resume many tasks at once."""

    @base.acts(NewResumeSerializer, ResumedManySerializer, operation_id="tasks_resume")
    def post(self, request: Request) -> Response:
        """Resume the PAUSED tasks of an application, or those stopped by one error.

        Commands for tasks of older checkpoints are refused.

        With `dry_run` nothing is done: the response contains the tasks that would be resumed. Send
        their ids as `tasks` to resume exactly these. A refusal of one task does not affect the
        others.
        A repetition with the same id applies to the tasks of the first request.
        Up to 500 tasks are resumed at once; `left` is the number of further ones: repeat with a new
        id until it is 0.
        """
        given = base.values(NewResumeSerializer, request.data)
        id = base.act_id(request, given)
        digests, left = _chosen(given, id)
        if given["dry_run"] or not digests:
            some = [{"task": digest, "command": None, "refused": ""} for digest in digests]
            return Response({"results": some, "left": left})
        actor, reason = request.user.get_username(), given.get("reason")
        done = actions.resume_tasks(digests, actor=actor, reason=reason, id=id)
        return Response({"results": ResumedSerializer(done, many=True).data, "left": left})


class DismissManyView(base.RestView):
    """Dismiss many tasks at once."""

    @base.acts(NewDismissalSerializer, DismissedManySerializer, operation_id="tasks_dismiss")
    def post(self, request: Request) -> Response:
        """Dismiss tasks that no run processes; a refusal of one does not affect the others.

        A repetition with the same id changes nothing.
        """
        given = base.values(NewDismissalSerializer, request.data)
        done = actions.dismiss_tasks(
            given["tasks"],
            actor=request.user.get_username(),
            reason=given["reason"],
            id=base.act_id(request, given),
        )
        return Response(DismissedManySerializer({"results": done}).data)


def _chosen(given: dict[str, Any], id: UUID) -> tuple[list[str], int]:
    """Return the requested tasks, and the number of further ones."""
    if "tasks" in given:
        return given["tasks"], 0
    application = given.get("application")
    if application is None:
        raise InvalidValue("application", None, "an application, or tasks by their ids")
    paused = queries.paused(application, fingerprint=given.get("fingerprint"))
    repeated = [] if given["dry_run"] else queries.resumed_by(id, application)
    if repeated:
        # Some of these may be PAUSED again.
        return repeated, paused.more + sum(each.id.digest not in repeated for each in paused.tasks)
    return sorted(each.id.digest for each in paused.tasks), paused.more

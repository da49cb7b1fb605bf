"""REST: the state of everything on one screen, and the checks of the installation."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester import __version__
from arrester.controlplane import queries
from arrester.controlplane.access.roles import Role
from arrester.controlplane.queries.conditions.condition import Condition
from arrester.dashboard.components import attention, fair_shares
from arrester.dashboard.rest import base, field_types
from arrester.dashboard.rest.problems import PROBLEMS
from arrester.dashboard.rest.resources.applications import ApplicationSerializer
from arrester.dashboard.rest.resources.pipelines import PipelineSerializer
from arrester.dashboard.rest.resources.tasks import TaskSerializer
from arrester.dashboard.rest.struct_serializers import StructSerializer
from arrester.domain.state.states import TaskStatus

#: Stopped tasks of each status in the answer.
_TASKS = 10
_CONDITIONS, _PIPELINES = 50, 20
_HOUR = timedelta(hours=1)


class PartSerializer(StructSerializer):
    """A part of the server, and whether it answers."""

    name = serializers.CharField(help_text="postgres, redis, wake, worker or housekeeper.")

    class Meta:
        struct = queries.Reach
        fields = ("name", "up", "last_seen_at", "detail")
        sources = {"last_seen_at": "last_seen"}


class ConditionSerializer(StructSerializer):
    """A condition that needs attention as long as it lasts."""

    class Meta:
        struct = Condition
        fields = (
            *("cause", "cause.critical", "application", "pipeline", "name", "line", "title"),
            *("detail", "path", "fingerprint", "count", "began_at"),
        )
        sources = {"began_at": "since"}


class StatusSerializer(serializers.Serializer[Any]):
    """The state of everything: parts of the server, applications, stopped tasks."""

    version = serializers.CharField(help_text="Of the server.")
    read_at = serializers.DateTimeField(help_text="The time of this answer, of the server.")
    account = serializers.CharField()
    role = serializers.ChoiceField(
        field_types.choices(Role),
        allow_null=True,
        help_text="On all applications; null: none, and only the applications of `roles` are seen.",
    )
    roles = serializers.DictField(
        child=serializers.ChoiceField(field_types.choices(Role)),
        help_text="Further roles, by application.",
    )
    parts = PartSerializer(many=True)
    conditions = ConditionSerializer(
        many=True,
        help_text=f"The most urgent first, {_CONDITIONS} at most, of each application some.",
    )
    conditions_in_all = serializers.IntegerField()
    waiting = serializers.IntegerField(
        allow_null=True, help_text="Batches that wait in Redis; null while Redis is unreachable."
    )
    quarantined = serializers.IntegerField(help_text="Invalid entries in quarantine.")
    applications = ApplicationSerializer(many=True)
    pipelines = PipelineSerializer(
        many=True,
        help_text=f"Dead ones first, {_PIPELINES} at most, of each application some.",
    )
    pipelines_in_all = serializers.IntegerField()
    failed_last_hour = serializers.DictField(
        child=serializers.IntegerField(), help_text="Failed records by application."
    )
    stopped = TaskSerializer(
        many=True,
        help_text=f"DEAD and PAUSED tasks, {_TASKS} of each at most, of each application some.",
    )


class StatusView(base.RestView):
    """The state of everything."""

    @extend_schema(responses={200: StatusSerializer} | PROBLEMS)
    def get(self, request: Request) -> Response:
        """Return what needs attention, the applications, and the parts of the server."""
        who = base.person_of(request)
        assert who is not None  # by the permission
        applications = queries.applications()
        stopped = [
            task
            for state in (TaskStatus.DEAD, TaskStatus.PAUSED)
            for task in queries.tasks_of_each(queries.TaskFilter(status=state.value), most=_TASKS)
        ]
        pipelines = queries.pipeline_flows(now=timezone.now())
        lags = [each.lag for each in applications]
        waiting = [each.waiting for each in lags if each.waiting is not None]
        found = {
            "version": __version__,
            "read_at": timezone.now(),
            "account": who.name,
            "role": None if who.role is None else who.role.value,
            "roles": who.roles,
            "parts": _parts(),
            "waiting": sum(waiting) if len(waiting) == len(lags) else None,
            "quarantined": sum(each.quarantined for each in lags),
            "applications": applications,
            "pipelines": fair_shares.first(
                pipelines, _PIPELINES, application=lambda each: each.application
            ),
            "pipelines_in_all": len(pipelines),
            "failed_last_hour": _failed_last_hour(),
            "stopped": stopped,
        }
        needing = attention.read(who, now=timezone.now(), lags=lags)
        found["conditions"] = [each.condition for each in needing.first(_CONDITIONS)]
        found["conditions_in_all"] = len(needing.items)
        checkpoints = queries.checkpoints({task.id.application for task in stopped})
        context = {
            "checkpoints": checkpoints,
            "owner_of": queries.owners_of_tasks(stopped),
            "attention": needing,
        }
        return Response(StatusSerializer(found, context=context).data)


class FindingSerializer(StructSerializer):
    class Meta:
        struct = queries.Finding
        fields = ("check", "value", "level", "advice")


class InstallationSerializer(serializers.Serializer[Any]):
    """The findings of all checks."""

    version = serializers.CharField(help_text="Of the server.")
    read_at = serializers.DateTimeField(help_text="The time of the checks, of the server.")
    findings = FindingSerializer(many=True)


class InstallationView(base.RestView):
    """Checks of the installation."""

    permission_classes = (base.MayActOnAll,)

    @extend_schema(responses={200: InstallationSerializer} | PROBLEMS)
    def get(self, request: Request) -> Response:
        """Check versions, migrations, roles, clocks, disks, lag, processes and agents."""
        findings = queries.findings()
        found = {"version": __version__, "read_at": timezone.now(), "findings": findings}
        return Response(InstallationSerializer(found).data)


def _parts() -> list[dict[str, Any]]:
    return [
        {"name": name, "up": reach.up, "last_seen": reach.last_seen, "detail": reach.detail}
        for name, reach in queries.health().parts.items()
    ]


def _failed_last_hour() -> dict[str, int]:
    # Counts are kept by minute.
    until = timezone.now().replace(second=0, microsecond=0) + timedelta(minutes=1)
    counts = queries.failed_by_application(since=until - _HOUR, until=until, step=_HOUR)
    return {each.application: each.count for each in counts}

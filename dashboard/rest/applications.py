"""REST: applications, their instances, and their runs with their error policies."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, get_args
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import queries
from arrester.controlplane.domain.error_policy.policy import Scope
from arrester.controlplane.domain.error_policy.tolerance import Window
from arrester.controlplane.domain.events import StageAnswer
from arrester.controlplane.domain.state.states import (
    ApplicationStatus,
    InstanceStatus,
    MostToleranceUsed,
    ThreadState,
    ThreadStatus,
)
from arrester.controlplane.domain.state.tolerance_usage import moment
from arrester.dashboard.rest import base
from arrester.dashboard.rest.checkpoints import (
    CheckpointsField,
    LiveField,
    NoRunSinceField,
    pop_live,
)


class ApplicationSerializer(serializers.Serializer[Any]):
    """An application: its state and counts."""

    name = serializers.CharField(source="state.name")
    status = serializers.ChoiceField(base.choices(ApplicationStatus), source="state.status.value")
    since = serializers.DateTimeField(source="state.since", allow_null=True)
    reason = serializers.CharField(source="state.reason", allow_null=True)
    actor = serializers.CharField(source="state.actor", allow_null=True)
    failed = serializers.IntegerField(source="state.failed", help_text="Failed records, exact.")
    last_event_at = serializers.DateTimeField(source="state.last_event_at", allow_null=True)
    paused = serializers.IntegerField(help_text="PAUSED tasks of live checkpoints.")
    dead = serializers.IntegerField(help_text="DEAD tasks of live checkpoints.")
    held = serializers.IntegerField(help_text="Held records of live checkpoints.")
    instances = serializers.IntegerField(help_text="Live instances.")
    lost = serializers.IntegerField(help_text="Live instances without a heartbeat.")
    groups = serializers.IntegerField()
    open_commands = serializers.IntegerField()
    position = serializers.IntegerField(
        source="state.sequence", help_text="The log position of this state."
    )


class InstanceSerializer(serializers.Serializer[Any]):
    """A driver process."""

    id = serializers.UUIDField()
    application = serializers.CharField()
    status = serializers.ChoiceField(base.choices(InstanceStatus), source="status.value")
    lost = serializers.BooleanField(help_text="No heartbeat: the status is the last known one.")
    since = serializers.DateTimeField(allow_null=True)
    started_at = serializers.DateTimeField(allow_null=True)
    host = serializers.CharField()
    pid = serializers.IntegerField()
    versions = serializers.DictField(child=serializers.CharField())
    spark_ui = serializers.CharField(
        source="spark_ui_address",
        allow_null=True,
        help_text="The address of the driver's Spark UI, as reported.",
    )
    reason = serializers.CharField(allow_null=True)
    failure = base.FailureFieldSerializer(allow_null=True)
    sequence = serializers.IntegerField()


class InstanceQuerySerializer(base.AsOfQuerySerializer):
    """Filters of the instances of an application."""

    ended = serializers.BooleanField(required=False, default=False)


class InProgressSerializer(serializers.Serializer[Any]):
    """The micro-batch or the chunk of held records that a run processes now."""

    pipeline = serializers.CharField()
    input = serializers.CharField(help_text="Such as `batch 7` or `held records`.")
    phase = serializers.CharField(allow_null=True, help_text="Such as `evaluate` or `write`.")
    since = serializers.DateTimeField(help_text="When its processing began.")


class RunningSerializer(serializers.Serializer[Any]):
    """An instance with its heartbeat; null without one."""

    id = serializers.UUIDField(source="state.id")
    application = serializers.CharField(source="state.application")
    host = serializers.CharField(source="state.host")
    pid = serializers.IntegerField(source="state.pid")
    status = serializers.ChoiceField(base.choices(InstanceStatus), source="state.status.value")
    lost = serializers.BooleanField(source="state.lost")
    started_at = serializers.DateTimeField(source="state.started_at", allow_null=True)
    versions = serializers.DictField(source="state.versions")
    spark_ui = serializers.CharField(source="state.spark_ui_address", allow_null=True)
    heard_at = serializers.DateTimeField(allow_null=True, help_text="The last heartbeat.")
    skew_seconds = serializers.FloatField(
        allow_null=True, help_text="How far its clock is ahead of the server's."
    )
    spooled = serializers.IntegerField(allow_null=True, help_text="Unconfirmed events.")
    spool_bytes = serializers.IntegerField(allow_null=True)
    spool_since = serializers.DateTimeField(allow_null=True)
    counted_only = serializers.IntegerField(
        allow_null=True, help_text="Failed records counted only, without details."
    )
    in_progress = InProgressSerializer(many=True)


class RunningQuerySerializer(base.PageQuerySerializer):
    """Filters of the list of instances."""

    application = serializers.CharField(required=False)
    ended = serializers.BooleanField(required=False, default=False)


class StagePolicySerializer(serializers.Serializer[Any]):
    """The error policy of one stage."""

    name = serializers.CharField(help_text="source, deserialize, process:<name> or produce.")
    step = serializers.CharField(allow_null=True, help_text="The author's name of the step.")
    kind = serializers.CharField()
    answer = serializers.CharField(
        allow_null=True, help_text="The answer to every failure; null: the handler decides."
    )
    handler = serializers.CharField(allow_null=True, help_text="The class of the handler.")
    origin = serializers.ChoiceField(["on_error", "configuration", "limit", "default"])
    on = serializers.DictField(
        child=serializers.CharField(), help_text="Answers by exception class or condition."
    )


class StageCommandedSerializer(serializers.Serializer[Any]):
    """A stage whose policy a person has overridden."""

    name = serializers.CharField()
    answer = serializers.ChoiceField(get_args(StageAnswer))
    actor = serializers.CharField(allow_null=True)
    reason = serializers.CharField(allow_null=True)
    since = serializers.DateTimeField()


class PolicySerializer(serializers.Serializer[Any]):
    """The error policy of a run, as reported at its start."""

    stages = StagePolicySerializer(many=True)
    commanded = StageCommandedSerializer(
        many=True, help_text="Operator override; it takes precedence."
    )
    sink = serializers.CharField()
    atomic = serializers.BooleanField()
    tolerance_limit = serializers.IntegerField(
        allow_null=True, help_text="For each task in one run; null: not set, negative: none."
    )
    rate_limit = serializers.IntegerField(
        allow_null=True, help_text="For each task in one window; null: not set, negative: none."
    )
    rate_duration = serializers.ChoiceField(base.choices(Window))
    retries_limit = serializers.IntegerField(help_text="Negative: unlimited.")
    retry_timeout_ms = serializers.IntegerField(help_text="Negative: unlimited.")
    retry_delay_max_ms = serializers.IntegerField()
    scope = serializers.ChoiceField(base.choices(Scope))
    outage_share = serializers.FloatField(
        allow_null=True, help_text="Null: each record is handled by itself."
    )
    outage_minimum = serializers.IntegerField()
    outage_response = serializers.CharField(allow_null=True)
    dead_letter_format = serializers.CharField(
        allow_null=True, help_text="Null: skipped records are not stored."
    )
    dead_letter_place = serializers.CharField(allow_null=True)
    uncaught = serializers.CharField(help_text="The answer to the end of the run by an exception.")


class ToleranceUsageSerializer(serializers.Serializer[Any]):
    """The most records that one task of the run has skipped; 0 without a limit."""

    total = serializers.IntegerField(help_text="Since the start of the run.")
    task = serializers.CharField(allow_null=True, allow_blank=True, help_text="The task's key.")
    window_start = serializers.SerializerMethodField(
        help_text="The newest window with a skipped record."
    )
    in_window = serializers.IntegerField(help_text="In that window.")
    window_task = serializers.CharField(allow_null=True, allow_blank=True)

    def get_window_start(self, usage: MostToleranceUsed) -> datetime | None:
        """Return the start of the window; None if no record was skipped."""
        return moment(usage.window_start_ms) if usage.in_window else None


class ThreadQuerySerializer(base.AsOfQuerySerializer):
    """Filters of the runs of an application."""

    checkpoints = CheckpointsField()


class ThreadSerializer(serializers.Serializer[Any]):
    """A pipeline on a checkpoint: its newest run."""

    application = serializers.CharField()
    pipeline = serializers.CharField()
    checkpoint = serializers.CharField()
    epoch = serializers.IntegerField()
    status = serializers.ChoiceField(base.choices(ThreadStatus), source="status.value")
    instance = serializers.UUIDField(allow_null=True)
    since = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField(allow_null=True)
    failure = base.FailureFieldSerializer(allow_null=True)
    policy = PolicySerializer(allow_null=True, help_text="Null: the agent does not report it.")
    described_at = serializers.DateTimeField(allow_null=True)
    spent = ToleranceUsageSerializer()
    sequence = serializers.IntegerField()
    live = LiveField(source="*")
    no_run_since = NoRunSinceField(source="*")


class ApplicationsView(base.RestView):
    """All applications."""

    @extend_schema(
        operation_id="applications_list",
        parameters=[base.AsOfQuerySerializer],
        responses={200: ApplicationSerializer(many=True)} | base.PAST,
    )
    def get(self, request: Request) -> Response:
        """List all applications by name."""
        applications = base.read(request, queries.applications, queries.as_of_state.applications)
        return Response(ApplicationSerializer(applications, many=True).data)


class OneApplicationView(base.RestView):
    """One application."""

    @extend_schema(
        parameters=[base.AsOfQuerySerializer], responses={200: ApplicationSerializer} | base.PAST
    )
    def get(self, request: Request, name: str) -> Response:
        """Return one application."""
        application = base.read(request, queries.application, queries.as_of_state.application, name)
        return Response(ApplicationSerializer(application).data)


class InstancesView(base.RestView):
    """Driver processes of an application."""

    @extend_schema(
        operation_id="instances_list",
        parameters=[InstanceQuerySerializer],
        responses={200: InstanceSerializer(many=True)} | base.PAST,
    )
    def get(self, request: Request, name: str) -> Response:
        """List the live instances of an application, or with `ended` the others."""
        queries.check_known(name)
        instances = base.read(
            request,
            queries.instances,
            queries.as_of_state.instances,
            name,
            query=InstanceQuerySerializer,
        )
        return Response(InstanceSerializer(instances, many=True).data)


class OneInstanceView(base.RestView):
    """One driver process."""

    @extend_schema(
        parameters=[base.AsOfQuerySerializer], responses={200: InstanceSerializer} | base.PAST
    )
    def get(self, request: Request, name: str, id: UUID) -> Response:
        """Return one instance of an application, live or ended."""
        instance = base.read(request, queries.instance, queries.as_of_state.instance, name, id)
        return Response(InstanceSerializer(instance).data)


class RunningInstancesView(base.RestView):
    """Instances of all applications."""

    @base.lists(RunningQuerySerializer, RunningSerializer)
    def get(self, request: Request) -> Response:
        """List instances with their heartbeats: clock, spool, counted-only failures."""
        wanted, page = base.list_values(RunningQuerySerializer, request)
        instances = queries.instance_page(wanted.pop("application", None), **wanted, **page)
        return base.paged(instances, RunningSerializer)


class ThreadsView(base.RestView):
    """Runs of pipelines."""

    @extend_schema(
        operation_id="threads_list",
        parameters=[ThreadQuerySerializer],
        responses={200: ThreadSerializer(many=True)} | base.PAST,
    )
    def get(self, request: Request, name: str) -> Response:
        """List the newest run of each pipeline of an application, on its live checkpoint.

        With `checkpoints=all` on each of its checkpoints.
        """
        queries.check_known(name)
        wanted = base.values(ThreadQuerySerializer, request.query_params)
        when = base.pop_as_of(wanted)
        threads: Sequence[ThreadState] = (
            queries.as_of_state.threads(name, when) if when else queries.threads(name)
        )
        if pop_live(wanted):
            threads = queries.live(threads)
        checkpoints = (
            queries.as_of_state.checkpoints([name], when) if when else queries.checkpoints([name])
        )
        context = {"checkpoints": checkpoints}
        return Response(ThreadSerializer(threads, many=True, context=context).data)

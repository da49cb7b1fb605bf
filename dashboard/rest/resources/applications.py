"""REST: applications, their instances, and their runs with their error policies."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import queries
from arrester.dashboard.components import attention
from arrester.dashboard.components.attention import Attention
from arrester.dashboard.rest import base
from arrester.dashboard.rest.checkpoints import (
    LIVE,
    CheckpointsField,
    LastRunEndedField,
    LiveField,
)
from arrester.dashboard.rest.problems import PAST
from arrester.dashboard.rest.resources.failures import FailureFieldSerializer
from arrester.dashboard.rest.resources.pipeline_pauses import PipelinePauseSerializer
from arrester.dashboard.rest.struct_serializers import StructSerializer
from arrester.domain.events import (
    PipelineDescribed,
    StageCommanded,
    StageDescribed,
)
from arrester.domain.state.states import (
    InstanceState,
    MostToleranceUsed,
    ThreadState,
)
from arrester.domain.state.tolerance_usage import moment
from arrester.domain.wire.codec import InProgress


class ApplicationSerializer(StructSerializer):
    """An application: its state and counts. The context has its conditions, except in the past."""

    attention = serializers.SerializerMethodField(
        help_text="Conditions that need attention, see /api/v1/status; null in the past."
    )

    class Meta:
        struct = queries.Summary
        fields = (
            *("state.name", "state.status", "status_changed_at", "state.reason", "state.actor"),
            *("state.failed", "state.last_event_at", "running", "no_run", "paused", "dead", "held"),
            *("instances", "lost", "groups", "open_commands", "state.sequence"),
        )
        sources = {"status_changed_at": "state.since"}

    def get_attention(self, summary: queries.Summary) -> int | None:
        """Return the number of conditions of an application."""
        needing: Attention | None = self.context.get("attention")
        return None if needing is None else len(needing.of(summary.state.name).items)


class InstanceSerializer(StructSerializer):
    """A driver process."""

    failure = FailureFieldSerializer(allow_null=True)

    class Meta:
        struct = InstanceState
        fields = (
            *("id", "application", "status", "lost", "status_changed_at", "started_at", "host"),
            *("pid", "versions", "spark_ui", "reason", "failure", "sequence"),
        )
        sources = {"status_changed_at": "since"}


class InstanceQuerySerializer(base.AsOfQuerySerializer):
    """Filters of the instances of an application."""

    ended = serializers.BooleanField(required=False, default=False)


class InProgressSerializer(StructSerializer):
    class Meta:
        struct = InProgress
        fields = ("pipeline", "input", "phase", "began_at")
        sources = {"began_at": "since"}


class RunningSerializer(StructSerializer):
    """An instance with its heartbeat; null without one."""

    in_progress = InProgressSerializer(many=True)

    class Meta:
        struct = queries.RunningInstance
        fields = (
            *("state.id", "state.application", "state.host", "state.pid", "state.status"),
            *("state.lost", "state.started_at", "state.versions", "state.spark_ui"),
            *("last_heartbeat_at", "skew_seconds", "spooled", "spool_bytes", "oldest_spooled_at"),
            "counted_only",
        )
        sources = {"last_heartbeat_at": "heard_at", "oldest_spooled_at": "spool_since"}


class RunningQuerySerializer(base.ApplicationQuerySerializer):
    """Filters of the list of instances."""

    ended = serializers.BooleanField(required=False, default=False)


class StagePolicySerializer(StructSerializer):
    class Meta:
        struct = StageDescribed
        fields = ("name", "step", "kind", "answer", "handler", "origin", "on")


class StageCommandedSerializer(StructSerializer):
    class Meta:
        struct = StageCommanded
        fields = ("name", "answer", "actor", "reason", "set_at")
        sources = {"set_at": "since"}


class PolicySerializer(StructSerializer):
    stages = StagePolicySerializer(many=True)
    commanded = StageCommandedSerializer(
        many=True, help_text="Operator override; it takes precedence."
    )

    class Meta:
        struct = PipelineDescribed
        fields = (
            *("stages", "commanded", "sink", "atomic", "tolerance_limit", "rate_limit"),
            *("rate_duration", "retries_limit", "retry_timeout_ms", "retry_delay_max_ms", "scope"),
            *("outage_share", "outage_minimum", "outage_response", "dead_letter_format"),
            *("dead_letter_place", "uncaught"),
        )


class ToleranceUsageSerializer(StructSerializer):
    """The most records that one task of the run has skipped; 0 without a limit."""

    window_began_at = serializers.SerializerMethodField(
        help_text="The newest window with a skipped record."
    )

    class Meta:
        struct = MostToleranceUsed
        fields = ("total", "task", "window_began_at", "in_window", "window_task")

    def get_window_began_at(self, usage: MostToleranceUsed) -> datetime | None:
        """Return the start of the window; None if no record was skipped."""
        return moment(usage.window_start_ms) if usage.in_window else None


class RunQuerySerializer(base.AsOfQuerySerializer):
    """Filters of the runs of an application."""

    checkpoints = CheckpointsField()


class RunSerializer(StructSerializer):
    failure = FailureFieldSerializer(allow_null=True)
    policy = PolicySerializer(allow_null=True, help_text="Null: the agent does not report it.")
    tolerance_usage = ToleranceUsageSerializer(source="spent")
    pause = PipelinePauseSerializer(
        source="paused",
        allow_null=True,
        help_text="The pause of the pipeline; of an ended run: the next one starts PAUSED.",
    )
    live = LiveField(source="*")
    last_run_ended_at = LastRunEndedField(source="*")

    class Meta:
        struct = ThreadState
        fields = (
            *("application", "pipeline", "checkpoint", "epoch", "status", "instance"),
            *("status_changed_at", "reason", "failure", "policy", "described_at"),
            *("tolerance_usage", "pause", "sequence"),
        )
        sources = {"status_changed_at": "since", "tolerance_usage": "spent"}


class ApplicationsView(base.ListView):
    """All applications."""

    query = base.AsOfQuerySerializer
    row = ApplicationSerializer

    def find(self, *, as_of: queries.AsOf | None = None) -> queries.Page[queries.Summary]:
        """List all applications by name, on one page."""
        found = queries.as_of_state.applications(as_of) if as_of else queries.applications()
        return queries.Page(rows=tuple(found), next=None)

    def context(self, rows: Sequence[Any], as_of: queries.AsOf | None) -> dict[str, Any]:
        """Return the conditions of the applications."""
        return _attention(self.request, as_of)


def _attention(request: Request, as_of: object) -> dict[str, Attention]:
    """Return the context for applications of now; empty for the past."""
    who = base.person_of(request)
    if who is None or as_of is not None:
        return {}
    return {"attention": attention.read(who, now=timezone.now())}


class OneApplicationView(base.RestView):
    """One application."""

    @extend_schema(
        parameters=[base.AsOfQuerySerializer],
        responses={200: ApplicationSerializer} | PAST,
    )
    def get(self, request: Request, name: str) -> Response:
        """Return one application."""
        application = base.read(request, queries.application, queries.as_of_state.application, name)
        context = _attention(request, request.query_params.get("as_of"))
        return Response(ApplicationSerializer(application, context=context).data)


class InstancesView(base.ListView):
    """Driver processes of an application."""

    query = InstanceQuerySerializer
    row = InstanceSerializer

    def find(
        self, *, name: str, ended: bool, as_of: queries.AsOf | None = None
    ) -> queries.Page[InstanceState]:
        """List the live instances of an application, or with `ended` the others, on one page."""
        queries.check_known(name)
        found = (
            queries.as_of_state.instances(name, as_of, ended=ended)
            if as_of
            else queries.instances(name, ended=ended)
        )
        return queries.Page(rows=tuple(found), next=None)


class OneInstanceView(base.RestView):
    """One driver process."""

    @extend_schema(
        parameters=[base.AsOfQuerySerializer], responses={200: InstanceSerializer} | PAST
    )
    def get(self, request: Request, name: str, id: UUID) -> Response:
        """Return one instance of an application, live or ended."""
        instance = base.read(request, queries.instance, queries.as_of_state.instance, name, id)
        return Response(InstanceSerializer(instance).data)


class RunningInstancesView(base.ListView):
    """Instances of all applications."""

    query = RunningQuerySerializer
    row = RunningSerializer

    def find(self, **wanted: Any) -> queries.Page[queries.RunningInstance]:
        """List instances with their heartbeats: clock, spool, counted-only failures."""
        return queries.instance_page(**wanted)


class RunsView(base.ListView):
    """Runs of pipelines."""

    query = RunQuerySerializer
    row = RunSerializer

    def find(
        self, *, name: str, checkpoints: str, as_of: queries.AsOf | None = None
    ) -> queries.Page[ThreadState]:
        """List the newest run of each pipeline of an application, on its live checkpoint.

        With `checkpoints=all` on each of its checkpoints. All are on one page.
        """
        queries.check_known(name)
        threads: Sequence[ThreadState] = (
            queries.as_of_state.threads(name, as_of) if as_of else queries.threads(name)
        )
        if checkpoints == LIVE:
            threads = queries.live(threads)
        return queries.Page(rows=tuple(threads), next=None)

    def context(self, rows: Sequence[Any], as_of: queries.AsOf | None) -> dict[str, Any]:
        """Return the checkpoints of the application."""
        name = self.kwargs["name"]
        return {
            "checkpoints": queries.as_of_state.checkpoints([name], as_of)
            if as_of
            else queries.checkpoints([name])
        }

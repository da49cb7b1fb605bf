"""REST: pipelines with their runs and what flows through them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import queries
from arrester.dashboard.rest import base, time_steps
from arrester.dashboard.rest.problems import PROBLEMS
from arrester.dashboard.rest.resources.failures import FailureFieldSerializer
from arrester.dashboard.rest.resources.pipeline_pauses import PipelinePauseSerializer
from arrester.dashboard.rest.struct_serializers import FilterSerializer, StructSerializer
from arrester.domain.events import FLOW_COUNTS


class FlowSumsSerializer(StructSerializer):
    class Meta:
        struct = queries.FlowSums
        fields = (*FLOW_COUNTS, "failed_share")


class PipelineQuerySerializer(base.PageQuerySerializer):
    """Filters of the list of pipelines."""

    class Meta:
        struct = queries.PipelineFilter


class PipelineSerializer(StructSerializer):
    pause = PipelinePauseSerializer(allow_null=True)
    recent = FlowSumsSerializer(
        allow_null=True, help_text="The last hour; null: its agent measures no flow."
    )

    class Meta:
        struct = queries.PipelineFlow
        fields = (
            *(
                "application",
                "pipeline",
                "checkpoint",
                "run",
                "epoch",
                "status_changed_at",
                "reason",
            ),
            *("release", "observed", "records_in_per_second", "records_out_per_second", "recent"),
            *("failed_share", "batch_p95_ms", "newest.last_batch_at", "newest.backlog"),
            *("newest.backlog_unit", "backlog_trend", "watermark_at", "pause", "paused"),
            *("dead", "held"),
        )
        sources = {"status_changed_at": "since", "watermark_at": "newest.watermark"}


class DurationSerializer(StructSerializer):
    class Meta:
        struct = queries.Duration
        fields = ("p50_ms", "p95_ms", "longest_ms")


class FlowIntervalSerializer(StructSerializer):
    durations = serializers.DictField(
        child=DurationSerializer(),
        help_text="By phase: total, source, evaluate, decide, store, write.",
    )

    class Meta:
        struct = queries.FlowInterval
        fields = (
            *("began_at", *(f"sums.{name}" for name in FLOW_COUNTS), "durations"),
            *("backlog", "backlog_unit"),
        )
        sources = {"began_at": "moment"}


class SeriesSerializer(serializers.Serializer[Any]):
    """A series; a step in which nothing was measured is left out."""

    since = serializers.DateTimeField(help_text="The beginning of the first step.")
    until = serializers.DateTimeField()
    step = serializers.IntegerField(help_text="Seconds.")
    results = FlowIntervalSerializer(many=True)


class PastRunSerializer(StructSerializer):
    failure = FailureFieldSerializer(allow_null=True)
    flow = FlowSumsSerializer(allow_null=True, help_text="Null: nothing was measured.")

    class Meta:
        struct = queries.PastRun
        fields = (
            *("checkpoint", "epoch", "instance", "release", "started_at", "ended_at", "seconds"),
            *("reason", "superseded", "failure", "flow", "sequence"),
        )


class RunsQuerySerializer(FilterSerializer):
    """How many runs are listed."""

    limit = serializers.IntegerField(
        required=False,
        default=base.LIMIT,
        min_value=1,
        max_value=base.MOST,
        error_messages=base.A_LIMIT,
    )


class PipelinesView(base.ListView):
    """Pipelines of all applications."""

    query = PipelineQuerySerializer
    row = PipelineSerializer

    def find(
        self, wanted: queries.PipelineFilter, **page: Any
    ) -> queries.Page[queries.PipelineFlow]:
        """List pipelines with the state of their run and what flows through them, by name."""
        return queries.pipeline_page(wanted, now=timezone.now(), **page)


class OnePipelineView(base.RestView):
    """One pipeline."""

    @extend_schema(responses={200: PipelineSerializer} | PROBLEMS)
    def get(self, request: Request, application: str, pipeline: str) -> Response:
        """Return the state of the run of a pipeline, and what flows through it."""
        found = queries.pipeline_flow(application, pipeline, now=timezone.now())
        return Response(PipelineSerializer(found).data)


class SeriesView(base.RestView):
    """What flowed through a pipeline over time."""

    @extend_schema(
        parameters=[time_steps.StepsQuerySerializer], responses={200: SeriesSerializer} | PROBLEMS
    )
    def get(self, request: Request, application: str, pipeline: str) -> Response:
        """Return the flow of a pipeline in equal steps: records, durations, backlog."""
        now = timezone.now()
        queries.pipeline_flow(application, pipeline, now=now)
        wanted = base.values(time_steps.StepsQuerySerializer, request.query_params)
        return _series(wanted, now=now, application=application, pipeline=pipeline)


class AllSeriesQuerySerializer(time_steps.StepsQuerySerializer):
    """The application, and the time."""

    application = serializers.CharField(required=False)


class AllSeriesView(base.RestView):
    """What flowed through all pipelines over time."""

    @extend_schema(
        operation_id="pipelines_series_of_all",
        parameters=[AllSeriesQuerySerializer],
        responses={200: SeriesSerializer} | PROBLEMS,
    )
    def get(self, request: Request) -> Response:
        """Return the flow of all pipelines, or of those of an application, in equal steps.

        Durations and backlogs are those of one pipeline only.
        """
        wanted = base.values(AllSeriesQuerySerializer, request.query_params)
        application = wanted.pop("application", None)
        if application is not None:
            queries.check_known(application)
        return _series(wanted, now=timezone.now(), application=application)


class RunsView(base.ListView):
    """The runs of a pipeline."""

    query = RunsQuerySerializer
    row = PastRunSerializer

    def find(self, *, application: str, pipeline: str, limit: int) -> queries.Page[queries.PastRun]:
        """List the newest runs of a pipeline: start, end, cause, and what they processed.

        There are no further pages.
        """
        queries.pipeline_flow(application, pipeline, now=timezone.now())
        found = queries.past_runs(application, pipeline, limit=limit)
        return queries.Page(rows=tuple(found), next=None)


def _series(wanted: dict[str, Any], *, now: datetime, **of: str | None) -> Response:
    since, until, step = time_steps.steps(now, **wanted)
    found = queries.flow_series(since=since, until=until, step=step, **of)
    answer = {"since": since, "until": until, "step": step.total_seconds(), "results": found}
    return Response(SeriesSerializer(answer).data)

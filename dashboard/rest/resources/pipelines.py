"""REST: pipelines with their runs and what flows through them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import queries
from arrester.dashboard.rest import base
from arrester.dashboard.rest.field_types import MomentField
from arrester.dashboard.rest.problems import PROBLEMS
from arrester.dashboard.rest.resources.failures import FailureFieldSerializer
from arrester.dashboard.rest.resources.pipeline_pauses import PipelinePauseSerializer
from arrester.dashboard.rest.struct_serializers import FilterSerializer, StructSerializer
from arrester.domain.errors import InvalidValue
from arrester.domain.events import FLOW_COUNTS

_MINUTE, _HOUR = timedelta(minutes=1), timedelta(hours=1)
#: The most steps of a series.
_STEPS = 1500
#: The default is the smallest of these that gives no more steps, in seconds.
_DEFAULTS = (60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 7 * 86_400)


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


class SeriesQuerySerializer(FilterSerializer):
    """The time of a series: by default the last hour by minutes."""

    since = MomentField(required=False)
    until = MomentField(required=False)
    step = serializers.IntegerField(
        required=False,
        min_value=60,
        max_value=7 * 86_400,
        help_text="Seconds, a multiple of 60; by default a minute, or more for at most"
        f" {_STEPS:,} steps.",
        error_messages=dict.fromkeys(
            ("invalid", "min_value", "max_value"), "60 to 604800 seconds, a multiple of 60"
        ),
    )


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

    @extend_schema(parameters=[SeriesQuerySerializer], responses={200: SeriesSerializer} | PROBLEMS)
    def get(self, request: Request, application: str, pipeline: str) -> Response:
        """Return the flow of a pipeline in equal steps: records, durations, backlog."""
        now = timezone.now()
        queries.pipeline_flow(application, pipeline, now=now)
        wanted = base.values(SeriesQuerySerializer, request.query_params)
        since, until, step = _steps(now, **wanted)
        found = queries.flow_series(
            since=since, until=until, step=step, application=application, pipeline=pipeline
        )
        answer = {"since": since, "until": until, "step": step.total_seconds(), "results": found}
        return Response(SeriesSerializer(answer).data)


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


def _steps(
    now: datetime,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    step: int | None = None,
) -> tuple[datetime, datetime, timedelta]:
    """Return the time and the step of a series; raise InvalidValue."""
    until = until or now
    since = since or until - _HOUR
    if since >= until:
        raise InvalidValue("since", since, f"a time before {until.isoformat()}")
    if step is None:
        seconds = (until - since).total_seconds()
        step = next((each for each in _DEFAULTS if seconds / each <= _STEPS), None)
    if step is None:
        longest = timedelta(seconds=_STEPS * _DEFAULTS[-1])
        raise InvalidValue("since", since, f"a time at most {longest.days:,} days before until")
    if step % 60:
        raise InvalidValue("step", step, "60 to 604800 seconds, a multiple of 60")
    length = timedelta(seconds=step)
    unit = _HOUR if step % 3600 == 0 else _MINUTE
    begin = since.replace(second=0, microsecond=0)
    begin = begin.replace(minute=0) if unit is _HOUR else begin
    if (until - begin) / length > _STEPS + 1:
        raise InvalidValue("step", step, f"a longer step: at most {_STEPS:,} of them")
    return begin, until, length

"""REST: failed records over time."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import queries
from arrester.dashboard.rest import base, field_types, time_steps
from arrester.dashboard.rest.problems import PROBLEMS
from arrester.dashboard.rest.struct_serializers import StructSerializer
from arrester.domain.errors import InvalidValue

#: The most names of a series, and those by default: twice as many as charts have colours.
_MOST, _NAMES = 50, 10


class FailureSeriesQuerySerializer(time_steps.StepsQuerySerializer):
    """Which failed records are counted, by what, and the time."""

    by = field_types.ListedChoiceField(
        get_args(queries.By),
        required=False,
        default="application",
        help_text="What the names of the counts are.",
    )
    names = serializers.IntegerField(
        required=False,
        default=_NAMES,
        min_value=1,
        max_value=_MOST,
        help_text="The most names. If there are more, the smallest ones are combined as one without"
        " a name.",
        error_messages=dict.fromkeys(
            ("invalid", "min_value", "max_value"), f"a whole number from 1 to {_MOST}"
        ),
    )

    class Meta:
        struct = queries.SeriesFilter


class StepCountSerializer(StructSerializer):
    class Meta:
        struct = queries.StepCount
        fields = ("began_at", "application", "name", "count")


class FailureSeriesSerializer(serializers.Serializer[Any]):
    """A series; a step without failed records is left out."""

    since = serializers.DateTimeField(help_text="The beginning of the first step.")
    until = serializers.DateTimeField()
    step = serializers.IntegerField(help_text="Seconds.")
    by = serializers.ChoiceField(get_args(queries.By), help_text="What the names are.")
    results = StepCountSerializer(many=True)


class FailureSeriesView(base.RestView):
    """Failed records over time."""

    @extend_schema(
        parameters=[FailureSeriesQuerySerializer],
        responses={200: FailureSeriesSerializer} | PROBLEMS,
    )
    def get(self, request: Request) -> Response:
        """Count failed records in equal steps, by time of occurrence, as the charts do."""
        given = base.values(FailureSeriesQuerySerializer, request.query_params)
        wanted: queries.SeriesFilter = base.pop_filter(FailureSeriesQuerySerializer, given)
        by, names = given.pop("by"), given.pop("names")
        if wanted.application is not None:
            queries.check_known(wanted.application)
        if wanted.application is None and wanted.task is None and is_detailed(wanted, by):
            # Of all applications these are too many counts.
            allowed = "an application, for counts by pipeline, stage or fingerprint"
            raise InvalidValue("application", None, allowed)
        if wanted.task is not None and (by != "application" or wanted != only_task(wanted)):
            raise InvalidValue("task", wanted.task, "a task without other filters and names")
        if wanted.application is not None and wanted.pipeline is not None:
            queries.check_pipeline(wanted.application, wanted.pipeline)
        if wanted.fingerprint is not None:
            queries.check_group(wanted.fingerprint, wanted.application)
        since, until, step = time_steps.steps(timezone.now(), **given)
        found = queries.failure_series(
            wanted, by=by, since=since, until=until, step=step, names=names
        )
        times = {"since": since, "until": until, "step": step.total_seconds()}
        answer = FailureSeriesSerializer(times | {"by": by, "results": ()}).data
        # A series has thousands of rows, whose fields are those of the struct.
        return Response(answer | {"results": msgspec.to_builtins(found)})


def is_detailed(wanted: queries.SeriesFilter, by: str) -> bool:
    """Return whether the counts are more detailed than those of applications."""
    return by != "application" or wanted != queries.SeriesFilter()


def only_task(wanted: queries.SeriesFilter) -> queries.SeriesFilter:
    """Return a filter that has only the task of another one."""
    return queries.SeriesFilter(task=wanted.task)

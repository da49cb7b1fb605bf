"""REST: instances and runs of an application, one error group, and the event feed."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import queries
from arrester.dashboard.rest import detail_serializers, parameters, serializers
from arrester.dashboard.rest.view_base import PAST, MayRead, View, asked, when_asked


class Instances(View):
    """Driver processes."""

    @extend_schema(
        operation_id="instances_list",
        parameters=[detail_serializers.InstanceQuery],
        responses={200: detail_serializers.Instance(many=True)} | PAST,
    )
    def get(self, request: Request, name: str) -> Response:
        """List the live instances of an application, or with `ended` the others."""
        wanted = asked(detail_serializers.InstanceQuery, request.query_params)
        when, ended = when_asked(wanted), wanted["ended"]
        queries.check_known(name)
        found = (
            queries.as_of_state.instances(name, when, ended=ended)
            if when
            else queries.instances(name, ended=ended)
        )
        return Response(detail_serializers.Instance(found, many=True).data)


class Instance(View):
    """One driver process."""

    @extend_schema(
        parameters=[parameters.AsOfQuery], responses={200: detail_serializers.Instance} | PAST
    )
    def get(self, request: Request, name: str, id: UUID) -> Response:
        """Return one instance of an application, live or ended."""
        when = when_asked(asked(parameters.AsOfQuery, request.query_params))
        found = queries.as_of_state.instance(name, id, when) if when else queries.instance(name, id)
        return Response(detail_serializers.Instance(found).data)


class Threads(View):
    """Runs of pipelines."""

    @extend_schema(
        operation_id="threads_list",
        parameters=[parameters.AsOfQuery],
        responses={200: detail_serializers.Thread(many=True)} | PAST,
    )
    def get(self, request: Request, name: str) -> Response:
        """List the newest run of each pipeline on each checkpoint of an application."""
        when = when_asked(asked(parameters.AsOfQuery, request.query_params))
        queries.check_known(name)
        found = queries.as_of_state.threads(name, when) if when else queries.threads(name)
        return Response(detail_serializers.Thread(found, many=True).data)


class ErrorGroup(View):
    """One cause."""

    @extend_schema(
        parameters=[parameters.AsOfQuery], responses={200: serializers.ErrorGroup} | PAST
    )
    def get(self, request: Request, application: str, fingerprint: str) -> Response:
        """Return one error group."""
        when = when_asked(asked(parameters.AsOfQuery, request.query_params))
        found = (
            queries.as_of_state.group(application, fingerprint, when)
            if when
            else queries.group(application, fingerprint)
        )
        return Response(serializers.ErrorGroup(found.state).data)


class Feed(View):
    """All events."""

    permission_classes = (MayRead,)

    @extend_schema(
        operation_id="feed",
        parameters=[detail_serializers.FeedQuery],
        responses={200: detail_serializers.FeedPage} | PAST,
    )
    def get(self, request: Request) -> Response:
        """Return the events after a cursor, of all applications or of one.

        Nothing is missed or repeated, with any number of writers. 410 if retention has dropped
        events after the cursor: start again without one.
        """
        return _feed(request.query_params)

    @extend_schema(
        operation_id="feed_by_body",
        request=detail_serializers.FeedQuery,
        responses={200: detail_serializers.FeedPage} | PAST,
    )
    def post(self, request: Request) -> Response:
        """Return the same for a request body: a cursor of thousands of applications exceeds the
        URL limit of servers and proxies."""
        return _feed(request.data)


def _feed(given: Any) -> Response:
    wanted = asked(detail_serializers.FeedQuery, given)
    found = queries.feed(wanted.pop("application", None), **wanted)
    return Response(detail_serializers.FeedPage(found).data)

"""REST: applications, tasks, failures and error groups, now or in the past."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import queries
from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.domain.state.states import GroupState
from arrester.dashboard.rest import parameters, serializers
from arrester.dashboard.rest.view_base import (
    PAST,
    PROBLEMS,
    View,
    asked,
    listed,
    page_of,
    paged,
    when_asked,
)


class Applications(View):
    """All applications."""

    @extend_schema(
        operation_id="applications_list",
        parameters=[parameters.AsOfQuery],
        responses={200: serializers.Application(many=True)} | PAST,
    )
    def get(self, request: Request) -> Response:
        """List all applications by name."""
        when = when_asked(asked(parameters.AsOfQuery, request.query_params))
        found = queries.as_of_state.applications(when) if when else queries.applications()
        return Response(serializers.Application(found, many=True).data)


class Application(View):
    """One application."""

    @extend_schema(
        parameters=[parameters.AsOfQuery], responses={200: serializers.Application} | PAST
    )
    def get(self, request: Request, name: str) -> Response:
        """Return one application."""
        when = when_asked(asked(parameters.AsOfQuery, request.query_params))
        found = queries.as_of_state.application(name, when) if when else queries.application(name)
        return Response(serializers.Application(found).data)


class Tasks(View):
    """Tasks, from their first failure on."""

    @extend_schema(
        operation_id="tasks_list",
        parameters=[parameters.TaskQuery],
        responses={200: page_of(serializers.Task)} | PAST,
    )
    def get(self, request: Request) -> Response:
        """List tasks of all checkpoints, including those that no run uses any more.

        A task that never failed is RUNNING and has no row.
        """
        wanted = listed(parameters.TaskQuery, request)
        when, cursor, limit = when_asked(wanted), wanted.pop("cursor", None), wanted.pop("limit")
        filter = queries.TaskFilter(**wanted)
        page = (
            queries.as_of_state.tasks(filter, when, cursor=cursor, limit=limit)
            if when
            else queries.tasks(filter, cursor=cursor, limit=limit)
        )
        return paged(page, serializers.Task)


class Task(View):
    """One task."""

    @extend_schema(parameters=[parameters.AsOfQuery], responses={200: serializers.Task} | PAST)
    def get(self, request: Request, digest: str) -> Response:
        """Return one task by its id."""
        when = when_asked(asked(parameters.AsOfQuery, request.query_params))
        found = queries.as_of_state.task(digest, when) if when else queries.task(digest)
        return Response(serializers.Task(found.state).data)


class Failures(View):
    """Failed records."""

    @extend_schema(
        parameters=[parameters.FailureQuery],
        responses={200: serializers.FailurePage} | PROBLEMS,
    )
    def get(self, request: Request) -> Response:
        """List failures, newest first.

        Each row stands for `count` failed records; their sum over all pages is exact. A page reads
        a bounded part of the history: if few rows match, it may be short or empty and still have a
        `next`.
        """
        wanted = listed(parameters.FailureQuery, request)
        if "exception_class" in wanted:
            queries.check_class(wanted["exception_class"])
        if "fingerprint" in wanted:
            queries.check_group(wanted["fingerprint"], wanted.get("application"))
        cursor, limit = wanted.pop("cursor", None), wanted.pop("limit")
        page = queries.failures(queries.FailureFilter(**wanted), cursor=cursor, limit=limit)
        return Response(serializers.FailurePage(page).data)


class ErrorGroups(View):
    """Failed records by cause."""

    @extend_schema(
        operation_id="errors_list",
        parameters=[parameters.GroupQuery],
        responses={200: page_of(serializers.ErrorGroup)} | PAST,
    )
    def get(self, request: Request) -> Response:
        """List error groups, the last failed first."""
        wanted = listed(parameters.GroupQuery, request)
        names: list[str] = [name for name in ("sort", "cursor", "limit") if name in wanted]
        rest = {name: wanted.pop(name) for name in names}
        if when := when_asked(wanted):
            return paged(_past_groups(wanted, when, rest), serializers.ErrorGroup)
        return paged(queries.groups(queries.GroupFilter(**wanted), **rest), serializers.ErrorGroup)


def _past_groups(
    wanted: dict[str, Any], when: queries.AsOf, rest: dict[str, Any]
) -> queries.Page[GroupState]:
    if rest.pop("sort") != queries.NEWEST or wanted.keys() - {"application", "text"}:
        allowed = "application, text, cursor and limit beside it: the past has one order"
        raise InvalidValue("as_of", str(when), allowed)
    application = wanted.pop("application", None)
    return queries.as_of_state.groups(application, when, **wanted, **rest)

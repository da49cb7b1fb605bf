"""REST: dead letters, held records, the audit, and the instances of all applications."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import queries
from arrester.dashboard.rest import action_serializers, parameters, serializers
from arrester.dashboard.rest.view_base import PROBLEMS, View, listed, page_of, paged


class Audit(View):
    """The audit."""

    @extend_schema(
        parameters=[action_serializers.AuditQuery],
        responses={200: page_of(action_serializers.Act)} | PROBLEMS,
    )
    def get(self, request: Request) -> Response:
        """List acts of people, newest first."""
        wanted = listed(action_serializers.AuditQuery, request)
        cursor, limit = wanted.pop("cursor", None), wanted.pop("limit")
        page = queries.audit(queries.AuditFilter(**wanted), cursor=cursor, limit=limit)
        return paged(page, action_serializers.Act)


class DeadLetters(View):
    """Dead letters."""

    @extend_schema(
        parameters=[action_serializers.DeadLetterQuery],
        responses={200: page_of(action_serializers.DeadLetters)} | PROBLEMS,
    )
    def get(self, request: Request) -> Response:
        """List dead letters, newest first: their number, destination, and who skipped them."""
        wanted = listed(action_serializers.DeadLetterQuery, request)
        cursor, limit = wanted.pop("cursor", None), wanted.pop("limit")
        page = queries.dead_letters(queries.DeadLetterFilter(**wanted), cursor=cursor, limit=limit)
        return paged(page, action_serializers.DeadLetters)


class Held(View):
    """Tasks that hold records."""

    @extend_schema(
        parameters=[parameters.ApplicationQuery],
        responses={200: page_of(serializers.Task)} | PROBLEMS,
    )
    def get(self, request: Request) -> Response:
        """List the tasks that hold records, most records first."""
        wanted = listed(parameters.ApplicationQuery, request)
        page = queries.held(wanted.pop("application", None), **wanted)
        return paged(page, serializers.Task)


class EveryInstance(View):
    """Instances of all applications."""

    @extend_schema(
        parameters=[action_serializers.RunningQuery],
        responses={200: page_of(action_serializers.Running)} | PROBLEMS,
    )
    def get(self, request: Request) -> Response:
        """List instances with their heartbeats: clock, spool, counted-only failures."""
        wanted = listed(action_serializers.RunningQuery, request)
        page = queries.running(wanted.pop("application", None), **wanted)
        return paged(page, action_serializers.Running)

"""REST: the audit."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import queries
from arrester.controlplane.domain.state.states import CommandStatus
from arrester.dashboard.rest import base
from arrester.dashboard.text import audit_text


class AuditQuerySerializer(base.ApplicationQuerySerializer):
    """Filters of the audit; times are of occurrence, `until` is exclusive."""

    actor = serializers.CharField(required=False)
    kind = base.ListedChoiceField(list(queries.ACT_KINDS), required=False)
    since = base.MomentField(required=False)
    until = base.MomentField(required=False)


class ActSerializer(serializers.Serializer[Any]):
    """An act of a person; for an account, `application` and `position` are null."""

    at = serializers.DateTimeField()
    actor = serializers.CharField(allow_null=True)
    kind = serializers.CharField(help_text="The event's name, or the act on an account.")
    application = serializers.CharField(allow_null=True)
    about = serializers.CharField(help_text="The object of the act.")
    what = serializers.CharField(help_text="The details of the act.")
    position = serializers.IntegerField(allow_null=True)
    status = serializers.ChoiceField(
        base.choices(CommandStatus),
        allow_null=True,
        help_text="In the audit, for an issued command: its current status.",
    )
    instance = serializers.UUIDField(
        allow_null=True,
        help_text="The instance whose driver reported the act; null: an act on the server.",
    )

    def to_representation(self, act: queries.Act) -> Any:
        """Return the fields of an act."""
        return super().to_representation(audit_text.row(act))


class AuditView(base.RestView):
    """The audit."""

    @base.lists(AuditQuerySerializer, ActSerializer)
    def get(self, request: Request) -> Response:
        """List acts of people, newest first."""
        wanted, page = base.list_values(AuditQuerySerializer, request)
        return base.paged(queries.audit(queries.AuditFilter(**wanted), **page), ActSerializer)

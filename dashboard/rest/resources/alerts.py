"""REST: alerts and their messages; acknowledge one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import queries
from arrester.controlplane.alerts import configuration, reads
from arrester.controlplane.alerts.outbox import MessageStatus
from arrester.controlplane.alerts.text import MessageKind
from arrester.controlplane.models import Alert
from arrester.controlplane.queries.conditions.causes import AlertCause
from arrester.dashboard.rest import base, field_types
from arrester.dashboard.rest.problems import PROBLEMS


class AlertQuerySerializer(base.ApplicationQuerySerializer):
    """Filters of the list of alerts."""

    open = serializers.BooleanField(
        required=False, default=False, help_text="Only alerts that are not resolved."
    )


class AlertMessageSerializer(serializers.Serializer[Any]):
    """A message about an alert."""

    id = serializers.UUIDField(source="message.id")
    kind = serializers.ChoiceField(field_types.choices(MessageKind), source="message.kind")
    channel = serializers.CharField(source="message.channel_name")
    status = serializers.ChoiceField(field_types.choices(MessageStatus), source="message.status")
    error = serializers.CharField(source="message.error")
    created_at = serializers.DateTimeField(source="message.created_at")
    sent_at = serializers.DateTimeField(source="message.sent_at", allow_null=True)


class AlertSerializer(serializers.Serializer[Any]):
    """A condition that needs a person."""

    id = serializers.IntegerField()
    cause = serializers.ChoiceField(field_types.choices(AlertCause))
    critical = serializers.BooleanField()
    application = serializers.CharField(help_text="Empty: the server itself.")
    title = serializers.CharField()
    detail = serializers.CharField()
    path = serializers.CharField(help_text="The page about it.")
    count = serializers.IntegerField(help_text="Affected tasks or records.")
    pipeline = serializers.CharField(allow_null=True)
    fingerprint = serializers.CharField(allow_null=True)
    began_at = serializers.DateTimeField(source="since")
    opened_at = serializers.DateTimeField()
    resolved_at = serializers.DateTimeField(allow_null=True)
    acknowledged_at = serializers.DateTimeField(allow_null=True)
    acknowledged_by = serializers.CharField()
    messages = serializers.SerializerMethodField()

    @extend_schema_field(AlertMessageSerializer(many=True))
    def get_messages(self, alert: Alert) -> Any:
        """Return the messages about the alert, oldest first."""
        found = self.context["messages"].get(alert.id, [])
        return AlertMessageSerializer(found, many=True).data


class EmptySerializer(serializers.Serializer[Any]):
    """An empty body."""


class AlertsView(base.ListView):
    """Alerts."""

    query = AlertQuerySerializer
    row = AlertSerializer

    def find(self, **wanted: Any) -> queries.Page[Alert]:
        """List alerts, newest first, with their messages."""
        return reads.alerts(**wanted)

    def context(self, rows: Sequence[Alert], as_of: queries.AsOf | None) -> dict[str, Any]:
        """Return the messages about the alerts."""
        return {"messages": reads.messages_of(each.id for each in rows)}


class AcknowledgeView(base.RestView):
    """Acknowledge an alert."""

    @extend_schema(request=EmptySerializer, responses={200: AlertSerializer} | PROBLEMS)
    def post(self, request: Request, id: int) -> Response:
        """Acknowledge an alert: it is not sent or escalated any more. Repeating it changes
        nothing."""
        base.values(EmptySerializer, request.data)
        alert = configuration.acknowledge(id, actor=request.user.get_username())
        context = {"messages": reads.messages_of([id])}
        return Response(AlertSerializer(alert, context=context).data)

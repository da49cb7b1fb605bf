"""The responses of errors, for the descriptions of endpoints."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from arrester.dashboard.rest.struct_serializers import StructSerializer
from arrester.domain.errors import PendingCommand


class PendingCommandSerializer(StructSerializer):
    class Meta:
        struct = PendingCommand
        fields = ("id", "kind", "actor", "issued_at")


class ProblemSerializer(serializers.Serializer[Any]):
    """An error response."""

    detail = serializers.CharField()
    field = serializers.CharField(required=False, help_text="400: the name of the invalid value.")
    value = serializers.JSONField(required=False, help_text="400: the invalid value.")
    allowed = serializers.CharField(required=False, help_text="400: the allowed values.")
    state = serializers.CharField(required=False, help_text="409: the state that forbids the act.")
    pending = PendingCommandSerializer(
        required=False, help_text="409: the command in progress that forbids this one, if any."
    )
    service = serializers.CharField(
        required=False, help_text="503: the service that does not answer, postgres or redis."
    )
    oldest = serializers.DateTimeField(
        required=False, allow_null=True, help_text="410: the oldest known time."
    )
    position = serializers.IntegerField(required=False, help_text="409 and 410: the log position.")


PROBLEMS: dict[int, Any] = dict.fromkeys((400, 401, 403, 404), ProblemSerializer)
#: The responses of acts that the state may forbid.
REFUSED = PROBLEMS | {409: ProblemSerializer}
#: The responses of endpoints with past states.
PAST = PROBLEMS | {410: ProblemSerializer}

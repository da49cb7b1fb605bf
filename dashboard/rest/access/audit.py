"""REST: the audit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Any

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request

from arrester.controlplane import queries
from arrester.controlplane.history import audit_export
from arrester.dashboard.rest import base, field_types
from arrester.dashboard.rest.problems import PROBLEMS
from arrester.dashboard.text import audit_text
from arrester.domain.state.states import CommandStatus

_LINES = "application/x-ndjson"
_LINES_PER_CHUNK = 500


class AuditQuerySerializer(base.PageQuerySerializer):
    kind = field_types.ListedChoiceField(list(queries.ACT_KINDS), required=False)

    class Meta:
        struct = queries.AuditFilter


class ActSerializer(serializers.Serializer[Any]):
    """An act of a person; for an account, `application` and `sequence` are null."""

    occurred_at = serializers.DateTimeField(source="at")
    actor = serializers.CharField(allow_null=True)
    kind = serializers.CharField(help_text="The event's name, or the act on an account.")
    application = serializers.CharField(allow_null=True)
    about = serializers.CharField(help_text="The object of the act.")
    what = serializers.CharField(help_text="The details of the act.")
    sequence = serializers.IntegerField(
        source="position", allow_null=True, help_text="The log position of the act's event."
    )
    status = serializers.ChoiceField(
        field_types.choices(CommandStatus),
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


class AuditView(base.ListView):
    """The audit."""

    query = AuditQuerySerializer
    row = ActSerializer

    def find(self, wanted: queries.AuditFilter, **page: Any) -> queries.Page[queries.Act]:
        """List acts of people, newest first."""
        return queries.audit(wanted, **page)


class AuditExportQuerySerializer(serializers.Serializer[Any]):
    """The range of an export, by time; `until` is exclusive."""

    since = field_types.MomentField(required=False)
    until = field_types.MomentField(required=False)


class AuditExportView(base.RestView):
    """The entries of the audit's chain as a signed file."""

    permission_classes = (base.MayAdministrate,)

    @extend_schema(
        parameters=[AuditExportQuerySerializer],
        responses={(200, _LINES): OpenApiTypes.STR} | PROBLEMS,
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        """Export entries as lines of JSON; the last line is signed by the server."""
        wanted = base.values(AuditExportQuerySerializer, request.query_params)
        lines = audit_export.export(wanted.get("since"), wanted.get("until"))
        # Read here, so that faults are reported before the first byte.
        response = StreamingHttpResponse(_stream(_some(lines), lines), content_type=_LINES)
        response["Content-Disposition"] = 'attachment; filename="audit.jsonl"'
        return response


async def _stream(first: bytes, lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    while first:
        yield first
        first = await sync_to_async(_some)(lines)


def _some(lines: Iterator[bytes]) -> bytes:
    return b"".join(islice(lines, _LINES_PER_CHUNK))

"""REST: the events of a time range as a Parquet file."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request

from arrester.controlplane import access
from arrester.controlplane.queries.event_table import ParquetFile
from arrester.dashboard.rest import base, field_types
from arrester.dashboard.rest.event_feed.stream import JsonErrors
from arrester.dashboard.rest.problems import PAST, problems
from arrester.domain.events import EVENT_TYPES

MEDIA_TYPE = "application/vnd.apache.parquet"


class ParquetQuerySerializer(serializers.Serializer[Any]):
    """The events of a file."""

    application = serializers.CharField(required=False, help_text="One log; all without it.")
    since = field_types.MomentField(
        required=False, help_text="Events that were received after this time."
    )
    until = field_types.MomentField(
        required=False, help_text="Events that were received up to this time."
    )
    type = field_types.ListedChoiceField(
        list(EVENT_TYPES), required=False, help_text="Only events of this type."
    )


class ParquetView(base.RestView):
    """The feed as a Parquet file."""

    permission_classes = (base.MayRead,)
    content_negotiation_class = JsonErrors

    @extend_schema(
        parameters=[ParquetQuerySerializer],
        responses={(200, MEDIA_TYPE): OpenApiTypes.BINARY} | PAST | problems(501),
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Export the events of a time range, with the fields of failures as columns.

        410 if retention has dropped events after `since`. A file that ends early has no footer, so
        that readers refuse it: repeat the request.
        """
        wanted = base.values(ParquetQuerySerializer, request.query_params)
        file = ParquetFile(wanted.pop("application", None), **wanted)
        who = base.person_of(request)

        def part() -> bytes | None:
            access.enter(who)
            return file.next_part()

        # Read here, so that errors have their status.
        response = StreamingHttpResponse(_parts(part(), part), content_type=MEDIA_TYPE)
        response["Content-Disposition"] = 'attachment; filename="events.parquet"'
        return response


async def _parts(part: bytes | None, next_part: Any) -> AsyncGenerator[bytes, None]:
    while part is not None:
        yield part
        part = await sync_to_async(next_part)()

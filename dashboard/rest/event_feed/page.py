"""REST: the events of the logs, for programs that follow them."""

from __future__ import annotations

from typing import Any

import msgspec
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import queries
from arrester.dashboard.rest import base
from arrester.dashboard.rest.problems import PAST
from arrester.dashboard.rest.struct_serializers import StructSerializer
from arrester.domain.errors import InvalidValue
from arrester.domain.events import StoredEvent


class FollowQuerySerializer(serializers.Serializer[Any]):
    """The events to follow, and the log positions to continue at."""

    application = serializers.CharField(required=False, help_text="One log; all without it.")
    cursor = serializers.CharField(required=False, help_text="`next` of the previous response.")
    last = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=base.MOST,
        error_messages=dict.fromkeys(
            ("invalid", "min_value", "max_value"), f"a whole number from 0 to {base.MOST}"
        ),
        help_text="Without a cursor: begin with so many events at the end of each log; 0 returns"
        " only a cursor.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse `last` with a cursor."""
        if "cursor" in attrs and "last" in attrs:
            raise InvalidValue("last", attrs["last"], "only without a cursor")
        return attrs


class FeedQuerySerializer(FollowQuerySerializer):
    """The events of a page."""

    limit = serializers.IntegerField(
        required=False,
        default=100,
        min_value=1,
        max_value=base.MOST,
        error_messages=base.A_LIMIT,
        help_text="The approximate number of events, shared among the logs.",
    )


class StoredEventRowSerializer(StructSerializer):
    """An event of the log, without its body."""

    run = serializers.SerializerMethodField(help_text="Pipeline, checkpoint and epoch.")
    data = serializers.SerializerMethodField(  # type: ignore[assignment]  # a name of DRF's, too
        help_text="The fields of the event; see docs/reference/events.md."
    )

    class Meta:
        struct = StoredEvent
        fields = (
            *("application", "sequence", "received_at", "event.type", "event.occurred_at"),
            *("event.instance", "run", "event.caused_by"),
        )
        help = {
            "sequence": "The log position: 1, 2, 3, …",
            "type": "See docs/reference/events.md.",
            "caused_by": "The command that led to it.",
        }

    def get_run(self, stored: StoredEvent) -> dict[str, Any] | None:
        """Return the run of the event."""
        run: dict[str, Any] | None = msgspec.to_builtins(stored.event.run)
        return run

    def get_data(self, stored: StoredEvent) -> dict[str, Any]:
        """Return the fields of the event, without those at their defaults."""
        # Not `to_builtins`: stored numbers that are no JSON, such as infinity, become null.
        fields = msgspec.json.decode(msgspec.json.encode(stored.event.data))
        return {name: value for name, value in fields.items() if name != "type"}


class FeedPageSerializer(StructSerializer):
    """Some events, and the cursor to continue with: no event is added before it."""

    results = StoredEventRowSerializer(many=True, source="events")

    class Meta:
        struct = queries.Feed
        fields = ("results", "next", "more")
        help = {"next": "Always present: later events come after this cursor."}


class FeedView(base.RestView):
    """All events."""

    permission_classes = (base.MayRead,)
    only_reads = True

    @extend_schema(
        operation_id="feed_list",
        parameters=[FeedQuerySerializer],
        responses={200: FeedPageSerializer} | PAST,
    )
    def get(self, request: Request) -> Response:
        """Return the events after a cursor, of all applications or of one.

        Nothing is missed or repeated, with any number of writers. 410 if retention has dropped
        events after the cursor: start again without one.
        """
        return _feed(request.query_params)

    @extend_schema(
        operation_id="feed_by_body",
        request=FeedQuerySerializer,
        responses={200: FeedPageSerializer} | PAST,
    )
    def post(self, request: Request) -> Response:
        """Return the same for a request body: a cursor of thousands of applications exceeds the
        URL limit of servers and proxies."""
        return _feed(request.data)


def _feed(given: Any) -> Response:
    wanted = base.values(FeedQuerySerializer, given)
    feed = queries.feed(wanted.pop("application", None), **wanted)
    return Response(FeedPageSerializer(feed).data)

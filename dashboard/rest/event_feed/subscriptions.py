"""REST: webhooks that receive events, for admins."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import queries
from arrester.controlplane.alerts import subscriptions
from arrester.controlplane.alerts.subscriptions import Subscription, SubscriptionForm
from arrester.dashboard.rest import base, field_types
from arrester.dashboard.rest.problems import PROBLEMS
from arrester.dashboard.rest.struct_serializers import FilterSerializer, StructSerializer
from arrester.domain.events import EVENT_TYPES


class SubscriptionSerializer(StructSerializer):
    """A webhook that receives events, and its state."""

    class Meta:
        struct = Subscription
        fields = (
            *("id", "name", "address", "event_types", "application", "created_at", "delivered_at"),
            *("waiting", "unread", "first_failed_at", "retry_at", "error"),
        )
        sources = {"first_failed_at": "failing_since"}
        help = {
            "address": "Without its secrets.",
            "event_types": "See docs/reference/events.md.",
            "application": "The application of the events; empty: all.",
            "delivered_at": "When the webhook last accepted events.",
            "waiting": "Messages that are not accepted yet.",
            "unread": "Events of any type that are stored and not looked at yet.",
            "first_failed_at": "Since when each attempt has failed; null: the last one succeeded.",
            "retry_at": "When the next attempt is.",
            "error": "Why the last attempt failed.",
        }


class NewSubscriptionSerializer(serializers.Serializer[Any]):
    """A webhook that is to receive events."""

    address = serializers.CharField(help_text="An https:// or http:// address.")
    event_types = serializers.ListField(
        child=field_types.ListedChoiceField(list(EVENT_TYPES)),
        min_length=1,
        help_text="See docs/reference/events.md.",
    )
    application = serializers.CharField(
        required=False, default="", allow_blank=True, help_text="Only its events; empty: all."
    )
    name = serializers.CharField(
        required=False, default="", allow_blank=True, help_text="Default: the host of the address."
    )


class AddedSubscriptionSerializer(SubscriptionSerializer):
    """A new subscription: only this response has the key that signs its webhooks."""

    key = serializers.CharField(help_text="See https://www.standardwebhooks.com.")

    class Meta(SubscriptionSerializer.Meta):
        pass


class ReplaySerializer(serializers.Serializer[Any]):
    """The events to deliver again."""

    since = field_types.MomentField(help_text="Events that were received after this time.")


class SubscriptionsView(base.ListView):
    """The webhooks that receive events."""

    permission_classes = (base.MayAdministrate,)
    query = FilterSerializer
    row = SubscriptionSerializer

    def find(self) -> queries.Page[Subscription]:
        """List the webhooks that receive events, all on one page."""
        return queries.Page(rows=tuple(subscriptions.subscriptions()))

    @extend_schema(
        request=NewSubscriptionSerializer,
        responses={201: AddedSubscriptionSerializer} | PROBLEMS,
    )
    def post(self, request: Request) -> Response:
        """Add a webhook that receives the events of some types, from now on."""
        wanted = base.values(NewSubscriptionSerializer, request.data)
        form = SubscriptionForm(**wanted | {"event_types": tuple(wanted["event_types"])})
        added, key = subscriptions.add(form, actor=_name(request))
        body = SubscriptionSerializer(added).data | {"key": key}
        return base.at(Response(body, status=201), "api-event-subscription", added.id)


class OneSubscriptionView(base.RestView):
    """One webhook that receives events."""

    permission_classes = (base.MayAdministrate,)

    @extend_schema(
        responses={200: SubscriptionSerializer} | PROBLEMS,
    )
    def get(self, request: Request, id: int) -> Response:
        """Return a webhook that receives events."""
        return Response(SubscriptionSerializer(subscriptions.subscription(id)).data)

    @extend_schema(responses={204: None} | PROBLEMS)
    def delete(self, request: Request, id: int) -> Response:
        """Delete a webhook; events that wait for it are not sent."""
        subscriptions.delete(id, actor=_name(request))
        return Response(status=204)


class ReplayView(base.RestView):
    """The replay of events to a webhook."""

    permission_classes = (base.MayAdministrate,)

    @extend_schema(
        request=ReplaySerializer,
        responses={200: SubscriptionSerializer} | PROBLEMS,
    )
    def post(self, request: Request, id: int) -> Response:
        """Deliver the events after a time again, as far as the log has them."""
        wanted = base.values(ReplaySerializer, request.data)
        subscriptions.replay(id, wanted["since"], actor=_name(request))
        return Response(SubscriptionSerializer(subscriptions.subscription(id)).data)


def _name(request: Request) -> str:
    return str(request.user.get_username())

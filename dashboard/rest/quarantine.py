"""REST: the quarantine, requeue and dismiss."""

from __future__ import annotations

import base64
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers as fields
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import actions, queries
from arrester.dashboard.rest import parameters
from arrester.dashboard.rest.serializers import Choice
from arrester.dashboard.rest.view_base import (
    IDEMPOTENCY_KEY,
    PROBLEMS,
    View,
    asked,
    command_id,
    page_of,
    paged,
)


class KeptAside(fields.Serializer[Any]):
    """An invalid entry of a stream, or an invalid event of a batch."""

    id = fields.IntegerField()
    application = fields.CharField()
    entry = fields.CharField(help_text="Its id in Redis.")
    batch = fields.UUIDField(allow_null=True)
    index = fields.IntegerField(allow_null=True, help_text="Of the event; null: the whole entry.")
    reason = fields.CharField()
    raw = fields.SerializerMethodField(help_text="Its bytes, in base64.")
    received_at = fields.DateTimeField()
    too_old = fields.BooleanField(help_text="Nothing else is wrong: the log may have it already.")
    requeued_at = fields.DateTimeField(allow_null=True)
    dismissed_at = fields.DateTimeField(allow_null=True)

    def get_raw(self, kept: queries.Quarantined) -> str:
        """Return the bytes in a form that JSON can contain."""
        return base64.b64encode(kept.raw).decode()


class NewQuarantineAct(fields.Serializer[Any]):
    """An act on a quarantined entry; DISMISS needs a reason."""

    id = fields.UUIDField(required=False, help_text="Repeating it has no further effect.")
    act = Choice(["REQUEUE", "DISMISS"])
    reason = fields.CharField(required=False, max_length=1000)


class Quarantine(View):
    """The quarantine."""

    @extend_schema(
        operation_id="quarantine_list",
        parameters=[parameters.ApplicationQuery],
        responses={200: page_of(KeptAside)} | PROBLEMS,
    )
    def get(self, request: Request) -> Response:
        """List quarantined entries, newest first."""
        wanted = asked(parameters.ApplicationQuery, request.query_params)
        page = queries.quarantine(wanted.pop("application", None), **wanted)
        return paged(page, KeptAside)


class ActOnQuarantine(View):
    """Requeue or dismiss an entry."""

    @extend_schema(
        request=NewQuarantineAct,
        parameters=[IDEMPOTENCY_KEY],
        responses={200: KeptAside} | PROBLEMS,
    )
    def post(self, request: Request, number: int) -> Response:
        """Act on one entry; return it after the act.

        If a requeued entry is still invalid, it waits on: `requeued_at` stays null.
        """
        given = asked(NewQuarantineAct, request.data)
        id, actor = command_id(request, given), request.user.get_username()
        if given["act"] == "REQUEUE":
            actions.requeue_one(number, actor=actor, id=id)
        else:
            actions.dismiss_one(number, actor=actor, reason=given.get("reason", ""), id=id)
        return Response(KeptAside(queries.quarantined(number)).data)

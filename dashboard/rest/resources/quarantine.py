"""REST: the quarantine, requeue and dismiss."""

from __future__ import annotations

import base64
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import actions, queries
from arrester.dashboard.rest import base, field_types
from arrester.dashboard.rest.struct_serializers import StructSerializer


class QuarantinedEntrySerializer(StructSerializer):
    """An invalid entry of a stream, or an invalid event of a batch."""

    raw = serializers.SerializerMethodField(help_text="The bytes of the entry, in base64.")

    class Meta:
        struct = queries.QuarantinedEntry
        fields = (
            *("id", "application", "entry", "batch", "index", "reason", "raw", "cut_from"),
            *("received_at", "too_old", "requeued_at", "dismissed_at"),
        )

    def get_raw(self, entry: queries.QuarantinedEntry) -> str:
        """Return the bytes in a form that JSON can contain."""
        return base64.b64encode(entry.raw).decode()


class NewQuarantineActSerializer(serializers.Serializer[Any]):
    """An act on a quarantined entry; DISMISS needs a reason."""

    id = serializers.UUIDField(required=False, help_text=base.AN_ID)
    act = field_types.ListedChoiceField(["REQUEUE", "DISMISS"])
    reason = serializers.CharField(required=False, max_length=1000)


class QuarantineView(base.ListView):
    """The quarantine."""

    query = base.ApplicationQuerySerializer
    row = QuarantinedEntrySerializer
    # An application of which all entries are invalid is not known.

    def find(self, **wanted: Any) -> queries.Page[queries.QuarantinedEntry]:
        """List quarantined entries, newest first."""
        return queries.quarantine(**wanted)


class ActOnQuarantineView(base.RestView):
    """Requeue or dismiss an entry."""

    @base.acts(NewQuarantineActSerializer, QuarantinedEntrySerializer)
    def post(self, request: Request, number: int) -> Response:
        """Act on one entry; return it after the act.

        If a requeued entry is still invalid, it stays quarantined: `requeued_at` stays null.
        """
        given = base.values(NewQuarantineActSerializer, request.data)
        id, actor = base.act_id(request, given), request.user.get_username()
        if given["act"] == "REQUEUE":
            actions.requeue_one(number, actor=actor, id=id)
        else:
            actions.dismiss_one(number, actor=actor, reason=given.get("reason", ""), id=id)
        return Response(QuarantinedEntrySerializer(queries.quarantined(number)).data)

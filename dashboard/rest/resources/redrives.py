"""REST: process dead letters once more."""

from __future__ import annotations

import json
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import actions
from arrester.dashboard.rest import base, field_types
from arrester.dashboard.rest.command_serializers import (
    CommandSerializer,
    WaitingRecordsSerializer,
    issued,
)
from arrester.dashboard.rest.problems import REFUSED
from arrester.dashboard.rest.resources.dead_letters import DeadLetterQuerySerializer
from arrester.dashboard.rest.struct_serializers import StructSerializer
from arrester.domain.commands.redrive import MAX_REDRIVEN
from arrester.domain.events import Redrive


class NewRedriveSerializer(DeadLetterQuerySerializer):
    """The dead letters of a redrive: by their ids, or all that match the filter and wait."""

    id = serializers.UUIDField(required=False, help_text=base.AN_ID)
    application = serializers.CharField()
    ids = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        max_length=MAX_REDRIVEN,
        help_text="Only these dead letters.",
    )
    patch = field_types.patch_field("of each record")
    waves = serializers.BooleanField(
        default=True, help_text="1 record, 10%, then the rest; false: all at once."
    )
    records_per_minute = serializers.IntegerField(
        required=False,
        allow_null=True,
        help_text="The most records in a minute; without: as fast as the pipeline processes them.",
    )
    dry_run = serializers.BooleanField(
        default=False, help_text="Return what the redrive would do, and issue nothing."
    )
    reason = serializers.CharField(required=False, max_length=1000, help_text="Required.")


class RedrivePlanSerializer(StructSerializer):
    waiting = WaitingRecordsSerializer(
        help_text="Those that would wait for stopped tasks; they are redriven last."
    )

    class Meta:
        struct = actions.RedrivePlan
        fields = ("pipeline", "checkpoint", "records", "more", "tasks", "waiting", "refused")


class RedriveView(base.RestView):
    """Redrives."""

    @base.acts(
        NewRedriveSerializer,
        {200: RedrivePlanSerializer, 201: CommandSerializer, 202: CommandSerializer},
        REFUSED,
    )
    def post(self, request: Request) -> Response:
        """Process dead letters once more, in waves: 202 with the command.

        They are of one pipeline and one checkpoint. 409 if the state forbids it. With `dry_run`
        nothing is issued: 200 with what the redrive would do.
        """
        given = base.values(NewRedriveSerializer, request.data)
        wanted = base.pop_filter(NewRedriveSerializer, given)
        redrive = Redrive(
            records=0,
            waves=given["waves"],
            records_per_minute=given.get("records_per_minute"),
            patch=None if given.get("patch") is None else json.dumps(given["patch"]),
        )
        application, ids = wanted.application, given.get("ids")
        if given["dry_run"]:
            plan = actions.plan_redrive(application, wanted, ids=ids, redrive=redrive)
            return Response(RedrivePlanSerializer(plan).data)
        state = actions.start_redrive(
            application,
            wanted,
            ids=ids,
            redrive=redrive,
            actor=request.user.get_username(),
            reason=given.get("reason"),
            command=base.act_id(request, given),
        )
        return issued(state)


class NewTestSerializer(serializers.Serializer[Any]):
    """The change to test."""

    id = serializers.UUIDField(required=False, help_text=base.AN_ID)
    patch = field_types.patch_field("of the record; without: as it is")


class DeadLetterTestView(base.RestView):
    """Tests of dead letters."""

    @base.acts(NewTestSerializer, {201: CommandSerializer, 202: CommandSerializer}, REFUSED)
    def post(self, request: Request, application: str, id: str) -> Response:
        """Let the pipeline run its steps once on a dead letter: 202 with the command.

        Nothing else happens. Poll the command for its `test`. 409 if the state forbids it.
        """
        given = base.values(NewTestSerializer, request.data)
        state = actions.test_dead_letter(
            application,
            id,
            actor=request.user.get_username(),
            patch=None if given.get("patch") is None else json.dumps(given["patch"]),
            command=base.act_id(request, given),
        )
        return issued(state)

"""REST: a command and its result, its verdict, and the progress of a rollout or redrive."""

from __future__ import annotations

import json
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.response import Response

from arrester.controlplane import queries
from arrester.dashboard.rest import base
from arrester.dashboard.rest.command_fields import kinds_with
from arrester.dashboard.rest.resources.failures import FailureFieldSerializer
from arrester.dashboard.rest.struct_serializers import IfSet, StructSerializer
from arrester.domain.commands.redrive import RedriveProgress, WaitingRecords
from arrester.domain.commands.rollout import Progress
from arrester.domain.commands.verdict import NextStop, Verdict
from arrester.domain.events import RecordTest, Redrive, Rollout
from arrester.domain.state.states import CommandState, Delivery


class DeliverySerializer(StructSerializer):
    class Meta:
        struct = Delivery
        fields = ("instance", "status", "delivered_at", "finished_at", "reason")


class RolloutSerializer(IfSet, StructSerializer):
    class Meta:
        struct = Rollout
        fields = ("fingerprint", "tasks", "waves", "observe_seconds", "tasks_per_minute")


class PatchField(serializers.ListField):
    """A stored JSON Patch; null without one."""

    child = serializers.DictField()

    def to_representation(self, data: Any) -> Any:
        """Return the operations."""
        return json.loads(data)


class StoredPatchField(IfSet, PatchField):
    """A stored JSON Patch that may be unset."""


class RedriveSerializer(IfSet, StructSerializer):
    patch = PatchField(allow_null=True, help_text="The JSON Patch of each record.")

    class Meta:
        struct = Redrive
        fields = ("records", "waves", "records_per_minute", "patch")


class RecordTestSerializer(IfSet, StructSerializer):
    failure = FailureFieldSerializer(allow_null=True, help_text="Why it fails; null: it passes.")

    class Meta:
        struct = RecordTest
        fields = ("rows", "failure")


class CommandSerializer(StructSerializer):
    """A command and its result."""

    rollout = RolloutSerializer(allow_null=True)
    redrive = RedriveSerializer(allow_null=True)
    test = RecordTestSerializer(
        allow_null=True, help_text="A test of a record: the result; null: there is none yet."
    )
    patch = StoredPatchField(
        allow_null=True,
        help_text=f"{kinds_with('patch')}: the JSON Patch of the record that stopped each task.",
    )
    force = serializers.SerializerMethodField(
        help_text="A shutdown: whether Spark jobs in progress are cancelled."
    )
    deliveries = DeliverySerializer(many=True)

    class Meta:
        struct = CommandState
        fields = (
            *("id", "kind", "application", "task", "actor", "reason", "status", "position"),
            *("resume_position", "patch", "pipeline", "stage", "answer", "pause_ends_at"),
            *("rollout", "redrive"),
            *("part_of", "force", "issued_at", "delivered_at", "finished_at", "expires_at"),
            *("outcome", "test", "deliveries", "sequence"),
        )
        sources = {
            "task": "task.digest",
            "pause_ends_at": "paused_until",
            "resume_position": "target",
        }
        help = {
            "resume_position": f"{kinds_with('resume_position')}: where the task resumes.",
            "pipeline": f"{kinds_with('pipeline')}, redrives: the pipeline.",
            "stage": f"{kinds_with('stage')}: the stage.",
            "answer": f"{kinds_with('answer')}: the answer to failures; null: as in the code.",
            "pause_ends_at": f"{kinds_with('pause_ends_at')}: its end; null: a person ends it.",
            "part_of": "The rollout or redrive that issued it.",
        }

    def get_force(self, command: CommandState) -> bool:
        """Return whether a shutdown cancels Spark jobs in progress."""
        return bool(command.force)


def issued(command: CommandState) -> Response:
    """Return the answer to a request that issued a command: 202 while it waits, else 201."""
    status = 201 if command.status.final else 202
    return base.at(
        Response(CommandSerializer(command).data, status=status), "api-command", command.id
    )


class NextStopSerializer(StructSerializer):
    class Meta:
        struct = NextStop
        fields = ("stopped_at", "position", "stops")
        sources = {"stopped_at": "at"}


class VerdictSerializer(StructSerializer):
    stop = NextStopSerializer(allow_null=True)

    class Meta:
        struct = Verdict
        fields = ("outcome", "stop", "held")


class ListedCommandSerializer(CommandSerializer):
    """A command, its result and its verdict; the context has the verdicts by command."""

    verdict = serializers.SerializerMethodField()

    @extend_schema_field(VerdictSerializer(allow_null=True))
    def get_verdict(self, command: CommandState) -> Any:
        """Return the verdict; None unless the command is applied and let a task continue."""
        verdict = self.context["verdicts"][command.id]
        return None if verdict is None else VerdictSerializer(verdict).data


class ProgressSerializer(StructSerializer):
    class Meta:
        struct = Progress
        fields = ("issued", "open", "applied", "not_applied", "stopped_again", "waiting")


class WaitingRecordsSerializer(StructSerializer):
    class Meta:
        struct = WaitingRecords
        fields = ("records", "tasks", "stopped_again", "text")


class RedriveProgressSerializer(StructSerializer):
    waiting = WaitingRecordsSerializer(
        help_text="Of the redriven ones, those that wait for a stopped task."
    )

    class Meta:
        struct = RedriveProgress
        fields = (
            *("issued", "open", "redriven", "waiting", "processed", "failed_again", "discarded"),
            "not_taken",
        )


class OneCommandSerializer(ListedCommandSerializer):
    """A command, its result, and its verdict or progress."""

    progress = serializers.SerializerMethodField()
    redrive_progress = serializers.SerializerMethodField()

    @extend_schema_field(ProgressSerializer(allow_null=True))
    def get_progress(self, command: CommandState) -> Any:
        """Return the progress of a rollout; None for other commands."""
        progress = queries.progress(command)
        return None if progress is None else ProgressSerializer(progress).data

    @extend_schema_field(RedriveProgressSerializer(allow_null=True))
    def get_redrive_progress(self, command: CommandState) -> Any:
        """Return the progress of a redrive; None for other commands."""
        progress = queries.redrive_progress(command)
        return None if progress is None else RedriveProgressSerializer(progress).data

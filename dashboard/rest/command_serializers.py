"""REST: a command and its result, its verdict, and the progress of a rollout or redrive."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from msgspec import UNSET
from rest_framework import serializers

from arrester.controlplane import queries
from arrester.controlplane.domain.commands.verdict import Outcome
from arrester.controlplane.domain.events import CommandKind
from arrester.controlplane.domain.state.states import CommandState, CommandStatus, if_set
from arrester.dashboard.rest import base
from arrester.dashboard.rest.command_fields import kinds_with


class DeliverySerializer(serializers.Serializer[Any]):
    """The state of a command at one instance."""

    instance = serializers.UUIDField()
    status = serializers.ChoiceField(base.choices(CommandStatus), source="status.value")
    delivered_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField(allow_null=True)


class RolloutSerializer(serializers.Serializer[Any]):
    """The tasks of a rollout, and how its commands for them are issued."""

    fingerprint = serializers.CharField(allow_null=True)
    tasks = serializers.IntegerField()
    waves = serializers.BooleanField()
    observe_seconds = serializers.IntegerField()
    tasks_per_minute = serializers.IntegerField()


class RedriveSerializer(serializers.Serializer[Any]):
    """The dead letters of a redrive."""

    records = serializers.IntegerField(help_text="How many were chosen.")
    waves = serializers.BooleanField()
    records_per_minute = serializers.IntegerField(allow_null=True)
    patch = serializers.CharField(allow_null=True, help_text="The JSON Patch of each record.")


class CommandSerializer(serializers.Serializer[Any]):
    """A command and its result."""

    id = serializers.UUIDField()
    kind = serializers.ChoiceField(base.choices(CommandKind), source="kind.value")
    application = serializers.CharField()
    task = serializers.CharField(source="task.digest", allow_null=True, default=None)
    actor = serializers.CharField()
    reason = serializers.CharField(allow_null=True)
    status = serializers.ChoiceField(base.choices(CommandStatus), source="status.value")
    position = serializers.IntegerField(
        allow_null=True, help_text="The position at which the task was held."
    )
    target = serializers.IntegerField(
        allow_null=True,
        help_text=f"{kinds_with('position')}: the position at which the task resumes.",
    )
    patch = serializers.SerializerMethodField(
        help_text=f"{kinds_with('patch')}: the JSON Patch of the record that stopped each task."
    )
    pipeline = serializers.CharField(
        allow_null=True, help_text=f"{kinds_with('pipeline')}, redrives: the pipeline."
    )
    stage = serializers.CharField(allow_null=True, help_text=f"{kinds_with('stage')}: the stage.")
    answer = serializers.CharField(
        allow_null=True,
        help_text=f"{kinds_with('answer')}: the answer to failures; null: as in the code.",
    )
    until = serializers.DateTimeField(
        source="paused_until",
        allow_null=True,
        help_text=f"{kinds_with('until')}: when the server resumes the task; null: a person does.",
    )
    rollout = serializers.SerializerMethodField()
    redrive = serializers.SerializerMethodField()
    part_of = serializers.SerializerMethodField(help_text="The rollout or redrive that issued it.")
    force = serializers.SerializerMethodField(
        help_text="A shutdown: whether Spark jobs in progress are cancelled."
    )
    issued_at = serializers.DateTimeField()
    delivered_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    expires_at = serializers.DateTimeField()
    outcome = serializers.CharField(allow_null=True)
    deliveries = DeliverySerializer(many=True)
    sequence = serializers.IntegerField()

    @extend_schema_field(RolloutSerializer(allow_null=True))
    def get_rollout(self, command: CommandState) -> Any:
        """Return the tasks of a rollout, and how its commands are issued; None for others."""
        return None if command.rollout is UNSET else RolloutSerializer(command.rollout).data

    @extend_schema_field(RedriveSerializer(allow_null=True))
    def get_redrive(self, command: CommandState) -> Any:
        """Return the dead letters of a redrive; None for others."""
        return None if command.redrive is UNSET else RedriveSerializer(command.redrive).data

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_patch(self, command: CommandState) -> str | None:
        """Return the JSON Patch of the record that stopped each task; None for others."""
        return if_set(command.patch)

    @extend_schema_field(serializers.UUIDField(allow_null=True))
    def get_part_of(self, command: CommandState) -> str | None:
        """Return the rollout that issued the command; None if a person did."""
        return None if command.part_of is UNSET else str(command.part_of)

    def get_force(self, command: CommandState) -> bool:
        """Return whether a shutdown cancels Spark jobs in progress."""
        return bool(command.force)


class NextStopSerializer(serializers.Serializer[Any]):
    """The first stop of the task since the command was applied."""

    at = serializers.DateTimeField()
    position = serializers.IntegerField(allow_null=True)
    stops = serializers.IntegerField(
        allow_null=True,
        help_text="How often the task has stopped there; null if it has continued since.",
    )


class VerdictSerializer(serializers.Serializer[Any]):
    """What an applied command has achieved so far."""

    outcome = serializers.ChoiceField(base.choices(Outcome), source="outcome.value")
    stop = NextStopSerializer(allow_null=True)
    held = serializers.IntegerField(help_text="Without a stop: the records still held.")


class ListedCommandSerializer(CommandSerializer):
    """A command, its result and its verdict; the context has the verdicts by command."""

    verdict = serializers.SerializerMethodField()

    @extend_schema_field(VerdictSerializer(allow_null=True))
    def get_verdict(self, command: CommandState) -> Any:
        """Return the verdict; None unless the command is applied and let a task continue."""
        verdict = self.context["verdicts"][command.id]
        return None if verdict is None else VerdictSerializer(verdict).data


class ProgressSerializer(serializers.Serializer[Any]):
    """What a rollout has achieved so far."""

    issued = serializers.IntegerField(help_text="Commands for tasks.")
    open = serializers.IntegerField(help_text="Of these, those without an answer.")
    applied = serializers.IntegerField()
    not_applied = serializers.IntegerField(help_text="Refused, expired or cancelled.")
    stopped_again = serializers.IntegerField(
        help_text="Tasks that applied the command, and are stopped again for the same cause now."
    )
    waiting = serializers.IntegerField(
        help_text="Tasks that are stopped now, without a command of it."
    )


class RedriveProgressSerializer(serializers.Serializer[Any]):
    """What a redrive has achieved so far, in dead letters."""

    issued = serializers.IntegerField(help_text="Those that commands were issued for.")
    open = serializers.IntegerField(help_text="Of these, those of the command without an answer.")
    redriven = serializers.IntegerField(help_text="Those that the pipeline processes or holds.")
    processed = serializers.IntegerField()
    failed_again = serializers.IntegerField()
    discarded = serializers.IntegerField()
    not_taken = serializers.IntegerField(
        help_text="Those that were not found, do not fit, or were taken by another redrive."
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

"""REST: list, read, issue and cancel commands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, get_args
from uuid import UUID

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import actions, queries
from arrester.controlplane.domain.commands.request import (
    LONGEST_PAUSE,
    NEEDS_REASON,
    TASK_COMMANDS,
    CommandRequest,
)
from arrester.controlplane.domain.commands.verdict import Outcome
from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.domain.events import CommandKind, StageAnswer
from arrester.controlplane.domain.state.states import CommandState, CommandStatus
from arrester.dashboard.rest import base

#: The names that a command for a part of an application needs.
_NAMES: Mapping[CommandKind, Sequence[str]] = defaultdict(
    tuple,
    {
        CommandKind.SET_POLICY: ("pipeline", "stage"),
        CommandKind.RESTART_PIPELINE: ("pipeline",),
    },
)


class CommandQuerySerializer(base.ApplicationQuerySerializer):
    """Filters of the list of commands."""

    task = base.TaskIdField()


class DeliverySerializer(serializers.Serializer[Any]):
    """The state of a command at one instance."""

    instance = serializers.UUIDField()
    status = serializers.ChoiceField(base.choices(CommandStatus), source="status.value")
    delivered_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField(allow_null=True)


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
        allow_null=True, help_text="RESUME_AT: the position at which the task resumes."
    )
    pipeline = serializers.CharField(
        allow_null=True, help_text="SET_POLICY, RESTART_PIPELINE: the pipeline."
    )
    stage = serializers.CharField(allow_null=True, help_text="SET_POLICY: the stage.")
    answer = serializers.CharField(
        allow_null=True, help_text="SET_POLICY: the answer to failures; null: as in the code."
    )
    until = serializers.DateTimeField(
        source="paused_until",
        allow_null=True,
        help_text="PAUSE_TASK: when the server resumes the task; null: a person does.",
    )
    issued_at = serializers.DateTimeField()
    delivered_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    expires_at = serializers.DateTimeField()
    outcome = serializers.CharField(allow_null=True)
    deliveries = DeliverySerializer(many=True)
    sequence = serializers.IntegerField()


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


class OneCommandSerializer(CommandSerializer):
    """A command, its result and its verdict."""

    verdict = serializers.SerializerMethodField()

    @extend_schema_field(VerdictSerializer(allow_null=True))
    def get_verdict(self, command: CommandState) -> Any:
        """Return the verdict; None unless the command is applied and let a task continue."""
        verdict = queries.verdict(command)
        return None if verdict is None else VerdictSerializer(verdict).data


class NewCommandSerializer(serializers.Serializer[Any]):
    """The fields of a new command: `task` for a command to a task, else `application`."""

    id = serializers.UUIDField(required=False, help_text=base.AN_ID)
    kind = base.ListedChoiceField(base.choices(CommandKind))
    application = serializers.CharField(required=False)
    task = serializers.CharField(required=False, help_text="The id of the task.")
    position = serializers.IntegerField(
        required=False,
        min_value=-(2**63),
        max_value=2**63 - 1,
        help_text="RESUME_AT: the position to resume at; held records before it are skipped.",
    )
    pipeline = serializers.CharField(
        required=False, help_text="SET_POLICY, RESTART_PIPELINE: the pipeline."
    )
    stage = serializers.CharField(
        required=False,
        help_text="SET_POLICY: source, deserialize, process:<name> or produce.",
    )
    answer = base.ListedChoiceField(
        get_args(StageAnswer),
        required=False,
        allow_null=True,
        help_text="SET_POLICY: the answer to all failures of the stage; null: as in the code.",
    )
    until = base.MomentField(
        required=False, help_text="PAUSE_TASK: when the server resumes the task."
    )
    duration_seconds = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=int(LONGEST_PAUSE.total_seconds()),
        help_text="PAUSE_TASK: after how many seconds the server resumes the task.",
    )
    reason = serializers.CharField(
        required=False,
        allow_null=True,
        max_length=1000,
        help_text=f"Required for {', '.join(NEEDS_REASON)}.",
    )


class NewCancelSerializer(serializers.Serializer[Any]):
    """The reason for cancelling a command."""

    id = serializers.UUIDField(required=False, help_text=base.AN_ID)
    reason = serializers.CharField(required=False, allow_null=True, max_length=1000)


class CommandsView(base.RestView):
    """Commands."""

    @base.lists(CommandQuerySerializer, CommandSerializer, operation_id="commands_list")
    def get(self, request: Request) -> Response:
        """List commands, newest first."""
        wanted, page = base.list_values(CommandQuerySerializer, request)
        return base.paged(
            queries.commands(wanted.pop("application", None), **wanted, **page), CommandSerializer
        )

    @base.acts(NewCommandSerializer, {201: CommandSerializer, 202: CommandSerializer}, base.REFUSED)
    def post(self, request: Request) -> Response:
        """Issue a command: 202 while it waits for an answer, 201 if it is already done.

        409 if the state forbids it; the refused command is in the log too.
        """
        state = _issue(request, base.values(NewCommandSerializer, request.data))
        return Response(CommandSerializer(state).data, status=201 if state.status.final else 202)


class OneCommandView(base.RestView):
    """One command."""

    @extend_schema(responses={200: OneCommandSerializer} | base.PROBLEMS)
    def get(self, request: Request, id: UUID) -> Response:
        """Return one command: poll it until its status is final, and on for its verdict."""
        return Response(OneCommandSerializer(queries.command(id)).data)


class CancelCommandView(base.RestView):
    """Cancel a command."""

    @base.acts(NewCancelSerializer, CommandSerializer, base.REFUSED)
    def post(self, request: Request, id: UUID) -> Response:
        """Cancel a command that no instance has fetched; 409 if it is too late."""
        given = base.values(NewCancelSerializer, request.data)
        actor, reason = request.user.get_username(), given.get("reason")
        state = actions.cancel_command(
            id, actor=actor, reason=reason, id=base.act_id(request, given)
        )
        return Response(CommandSerializer(state).data)


def _issue(request: Request, given: dict[str, Any]) -> CommandState:
    kind, id = CommandKind(given["kind"]), base.act_id(request, given)
    actor, reason = request.user.get_username(), given.get("reason")
    if kind in TASK_COMMANDS:
        task = _required(given, "task", f"the task of {kind}")
        target = None
        if kind is CommandKind.RESUME_AT:
            target = _required(given, "position", "the position that the task resumes at")
        seconds = given.get("duration_seconds")
        return actions.command_task(
            kind,
            task,
            actor=actor,
            reason=reason,
            target=target,
            until=given.get("until"),
            duration=None if seconds is None else timedelta(seconds=seconds),
            command=id,
        )
    application = _required(given, "application", f"the application of {kind}")
    about = {name: _required(given, name, f"the {name} of {kind}") for name in _NAMES[kind]}
    if kind is CommandKind.SET_POLICY:
        if "answer" not in given:
            allowed = "CONTINUE, RETRY, PAUSE, FAIL, or null: as in the code"
            raise InvalidValue("answer", None, allowed)
        about["answer"] = given["answer"]
    requested = CommandRequest(command=id, kind=kind, actor=actor, reason=reason, **about)
    return actions.issue_command(application, requested)


def _required(given: dict[str, Any], name: str, allowed: str) -> Any:
    if given.get(name) in (None, ""):
        raise InvalidValue(name, given.get(name), allowed)
    return given[name]

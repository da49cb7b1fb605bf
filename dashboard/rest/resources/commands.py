"""REST: list, read, issue and cancel commands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, get_args
from uuid import UUID

from drf_spectacular.utils import extend_schema, extend_schema_field
from msgspec.structs import replace
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import actions, queries
from arrester.dashboard.rest import base, field_types
from arrester.dashboard.rest.command_fields import (
    NAMES,
    OF_KEY,
    ROLLOUT_FIELDS,
    check_fields,
    kinds_with,
    names_of,
)
from arrester.dashboard.rest.command_serializers import (
    CommandSerializer,
    ListedCommandSerializer,
    OneCommandSerializer,
    issued,
)
from arrester.dashboard.rest.problems import PROBLEMS, REFUSED
from arrester.dashboard.rest.struct_serializers import StructSerializer
from arrester.domain.commands.kinds import KINDS, Kind, Subject
from arrester.domain.commands.request import CommandRequest
from arrester.domain.commands.request_checks import LONGEST_PAUSE
from arrester.domain.commands.verdict import Verdict
from arrester.domain.errors import InvalidValue
from arrester.domain.events import CommandKind, Rollout, StageAnswer
from arrester.domain.identity.names import TaskId
from arrester.domain.state.states import CommandState, CommandStatus

#: A redrive needs dead letters: see `redrives`.
_KINDS = [kind for kind in CommandKind if KINDS[kind].subject is not Subject.DEAD_LETTERS]
_LONGEST_PAUSE_SECONDS = int(LONGEST_PAUSE.total_seconds())
_NEED_REASON = [row.kind.value for row in KINDS.values() if row.needs_reason]


class CommandQuerySerializer(base.ApplicationQuerySerializer):
    """Filters of the list of commands."""

    task = field_types.task_id_field(required=False, help_text="The id of a task.")
    part_of = serializers.UUIDField(
        required=False, help_text="The commands that this rollout or redrive has issued."
    )
    status = field_types.ListedChoiceField(field_types.choices(CommandStatus), required=False)
    open = serializers.BooleanField(
        required=False, default=False, help_text="Only commands without a final status."
    )
    kind = field_types.ListedChoiceField(field_types.choices(CommandKind), required=False)
    actor = serializers.CharField(required=False, help_text="The account that issued it.")
    since = field_types.MomentField(required=False, help_text="Issued at this time or later.")
    until = field_types.MomentField(required=False, help_text="Issued before this time.")
    parts = serializers.BooleanField(
        required=False, default=True, help_text="Also the commands that redrives have issued."
    )


class NewCommandSerializer(serializers.Serializer[Any]):
    """The fields of a new command: `task` for a command to a task, else `application`."""

    id = serializers.UUIDField(required=False, help_text=base.AN_ID)
    kind = field_types.ListedChoiceField([each.value for each in _KINDS])
    application = serializers.CharField(required=False)
    task = serializers.CharField(required=False, help_text="The id of the task.")
    key = serializers.CharField(
        required=False,
        allow_blank=True,
        trim_whitespace=False,
        help_text=f"{kinds_with('key')}: in place of `task`, a key of `pipeline` in `application`;"
        " the server need not know the task yet.",
    )
    resume_position = serializers.IntegerField(
        required=False,
        min_value=-(2**63),
        max_value=2**63 - 1,
        help_text=f"{kinds_with('resume_position')}: held records before it are skipped.",
    )
    patch = field_types.patch_field(
        f"of the record that stopped each task, for {kinds_with('patch', separator=' and ')}"
    )
    pipeline = serializers.CharField(
        required=False, help_text=f"{kinds_with('pipeline')}: the pipeline."
    )
    stage = serializers.CharField(
        required=False,
        help_text=f"{kinds_with('stage')}: source, deserialize, process:<name> or produce.",
    )
    answer = field_types.ListedChoiceField(
        get_args(StageAnswer),
        required=False,
        allow_null=True,
        help_text=f"{kinds_with('answer')}: the answer to all failures of the stage; null: as in"
        " the code.",
    )
    instance = serializers.UUIDField(
        required=False, help_text=f"{kinds_with('instance')}: the id of the instance."
    )
    force = serializers.BooleanField(
        required=False,
        help_text="A shutdown: cancel Spark jobs in progress. It may follow one without force.",
    )
    pause_ends_at = field_types.MomentField(
        required=False, help_text=f"{kinds_with('pause_ends_at')}: the end of the pause."
    )
    duration_seconds = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=_LONGEST_PAUSE_SECONDS,
        error_messages=dict.fromkeys(
            ("invalid", "min_value", "max_value"),
            f"a whole number of seconds from 1 to {_LONGEST_PAUSE_SECONDS}",
        ),
        help_text=f"{kinds_with('duration_seconds')}: after how many seconds the pause ends.",
    )
    fingerprint = serializers.CharField(
        required=False,
        help_text="Rollouts: the error group that stopped the tasks; without it: all stopped ones.",
    )
    waves = serializers.BooleanField(
        required=False, help_text="Rollouts: 1 task, 10%, then the rest; false: all at once."
    )
    observe_seconds = serializers.IntegerField(
        required=False,
        help_text="Rollouts: how long after a wave none of its tasks may stop again (30).",
    )
    tasks_per_minute = serializers.IntegerField(
        required=False, help_text="Rollouts: the most commands of waves in a minute (600)."
    )
    dry_run = serializers.BooleanField(
        default=False, help_text="Return what the command would do, and issue nothing."
    )
    reason = serializers.CharField(
        required=False,
        allow_null=True,
        max_length=1000,
        help_text=f"Required for {', '.join(_NEED_REASON)}.",
    )


class DryRunSerializer(StructSerializer):
    tasks = serializers.SerializerMethodField(help_text="Ids of affected tasks; at most 500.")

    class Meta:
        struct = actions.DryRun
        fields = ("tasks", "total", "instances", "refused", "skipped", "afterwards")

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_tasks(self, found: actions.DryRun) -> list[str]:
        """Return the ids of the tasks."""
        return [task.digest for task in found.tasks]


class NewCancelSerializer(serializers.Serializer[Any]):
    """The reason for cancelling a command."""

    id = serializers.UUIDField(required=False, help_text=base.AN_ID)
    reason = serializers.CharField(required=False, allow_null=True, max_length=1000)


class CommandsView(base.ListView):
    """Commands."""

    query = CommandQuerySerializer
    row = ListedCommandSerializer

    def find(self, **wanted: Any) -> queries.Page[CommandState]:
        """List commands, newest first."""
        return queries.commands(**wanted)

    def context(self, rows: Sequence[CommandState], as_of: queries.AsOf | None) -> dict[str, Any]:
        """Return the verdicts on the commands."""
        return {"verdicts": _verdicts(rows)}

    @base.acts(
        NewCommandSerializer,
        {200: DryRunSerializer, 201: CommandSerializer, 202: CommandSerializer},
        REFUSED,
    )
    def post(self, request: Request) -> Response:
        """Issue a command: 202 while it waits for an answer, 201 if it is already done.

        409 if the state forbids it; the refused command is in the log too. With `dry_run`
        nothing is issued: 200 with the affected tasks and instances.
        """
        given = base.values(NewCommandSerializer, request.data)
        application, requested = _requested(request, given)
        with base.renamed(NAMES):
            if given["dry_run"]:
                return Response(DryRunSerializer(actions.dry_run(application, requested)).data)
            state = _issue(application, requested)
        return issued(state)


class OneCommandView(base.RestView):
    """One command."""

    @extend_schema(responses={200: OneCommandSerializer} | PROBLEMS)
    def get(self, request: Request, id: UUID) -> Response:
        """Return one command: poll it until its status is final, and on for its verdict."""
        command = queries.command(id)
        context = {"verdicts": _verdicts([command])}
        return Response(OneCommandSerializer(command, context=context).data)


class CancelCommandView(base.RestView):
    """Cancel a command."""

    @base.acts(NewCancelSerializer, CommandSerializer, REFUSED)
    def post(self, request: Request, id: UUID) -> Response:
        """Cancel a command that no instance has fetched; 409 if it is too late."""
        given = base.values(NewCancelSerializer, request.data)
        actor, reason = request.user.get_username(), given.get("reason")
        state = actions.cancel_command(
            id, actor=actor, reason=reason, id=base.act_id(request, given)
        )
        return Response(CommandSerializer(state).data)


def _verdicts(commands: Sequence[CommandState]) -> dict[UUID, Verdict | None]:
    """Return the verdicts on commands by id."""
    return {
        each.id: verdict for each, verdict in zip(commands, queries.verdicts(commands), strict=True)
    }


def _requested(request: Request, given: dict[str, Any]) -> tuple[str, CommandRequest]:
    """Return the application and the command of a request."""
    kind = CommandKind(given["kind"])
    check_fields(kind, given)
    seconds = given.get("duration_seconds")
    requested = CommandRequest(
        command=base.act_id(request, given),
        kind=kind,
        actor=request.user.get_username(),
        reason=given.get("reason"),
        until=given.get("pause_ends_at"),
        duration=None if seconds is None else timedelta(seconds=seconds),
        patch=None if given.get("patch") is None else json.dumps(given["patch"]),
        force=given.get("force", False),
    )
    row = KINDS[kind]
    if row.subject is Subject.TASK:
        task, target = _task(row, given), None
        if "target" in row.fields:
            target = _required(given, "resume_position", "the position that the task resumes at")
        return task.application, replace(requested, task=task, target=target)
    about = {
        name: _required(given, name, f"the {name} of {kind}") for name in names_of(row.subject)
    }
    application = about.pop("application")
    if "answer" in row.fields:
        if "answer" not in given:
            allowed = "CONTINUE, RETRY, PAUSE, FAIL, or null: as in the code"
            raise InvalidValue("answer", None, allowed)
        about["answer"] = given["answer"]
    if row.subject is Subject.TASKS:
        values = {name: given[name] for name in ROLLOUT_FIELDS if name in given}
        about["rollout"] = Rollout(tasks=0, **values)
    return application, replace(requested, **about)


def _task(row: Kind, given: dict[str, Any]) -> TaskId:
    """Return the task that a request names, by its id or its key."""
    of_key = [name for name in OF_KEY if given.get(name) is not None]
    if not of_key:
        return actions.task_id(_required(given, "task", f"the task of {row.kind}"))
    if given.get("task") is not None:
        raise InvalidValue(of_key[0], given[of_key[0]], "no value together with task")
    application = _required(given, "application", "the application of the key")
    pipeline = _required(given, "pipeline", "the pipeline of the key")
    if given.get("key") is None:
        raise InvalidValue("key", None, f"a key of pipeline {pipeline}")
    return actions.task_of_key(application, pipeline, given["key"])


def _issue(application: str, requested: CommandRequest) -> CommandState:
    if requested.rollout is None:
        return actions.issue_command(application, requested)
    return actions.start_rollout(application, requested)


def _required(given: dict[str, Any], name: str, allowed: str) -> Any:
    if given.get(name) in (None, ""):
        raise InvalidValue(name, given.get(name), allowed)
    return given[name]

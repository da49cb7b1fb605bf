"""REST: list, read and issue commands."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import actions, queries
from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.domain.events import CommandKind, StageAnswer
from arrester.controlplane.domain.state.states import CommandState
from arrester.dashboard.rest import parameters, serializers
from arrester.dashboard.rest.view_base import (
    IDEMPOTENCY_KEY,
    PROBLEMS,
    View,
    asked,
    command_id,
    listed,
    page_of,
    paged,
)


class Commands(View):
    """Commands."""

    @extend_schema(
        operation_id="commands_list",
        parameters=[parameters.CommandQuery],
        responses={200: page_of(serializers.Command)} | PROBLEMS,
    )
    def get(self, request: Request) -> Response:
        """List commands, newest first."""
        wanted = listed(parameters.CommandQuery, request)
        return paged(
            queries.commands(wanted.pop("application", None), **wanted), serializers.Command
        )

    @extend_schema(
        request=serializers.NewCommand,
        parameters=[IDEMPOTENCY_KEY],
        responses={201: serializers.Command, 202: serializers.Command, 409: serializers.Problem}
        | PROBLEMS,
    )
    def post(self, request: Request) -> Response:
        """Issue a command: 202 while it waits for an answer, 201 if it is already done.

        409 if the state forbids it; the refused command is in the log too.
        """
        requested = asked(serializers.NewCommand, request.data)
        state = _issue(request, requested)
        status = 201 if state.status.final else 202
        return Response(serializers.Command(state).data, status=status)


class Command(View):
    """One command."""

    @extend_schema(responses={200: serializers.Command} | PROBLEMS)
    def get(self, request: Request, id: UUID) -> Response:
        """Return one command: poll it until its status is final."""
        return Response(serializers.Command(queries.command(id)).data)


def _issue(request: Request, requested: dict[str, Any]) -> CommandState:
    actor, command = request.user.get_username(), command_id(request, requested)
    match CommandKind(requested["kind"]):
        case CommandKind.RESUME_TASK:
            reason = requested.get("reason")
            return actions.resume_task(
                _given(requested, "task"), reason=reason, actor=actor, command=command
            )
        case CommandKind.SKIP_RECORD:
            reason = requested.get("reason") or ""
            return actions.skip_record(
                _given(requested, "task"), reason=reason, actor=actor, command=command
            )
        case CommandKind.RESUME_AT:
            return actions.resume_task_at(
                _given(requested, "task"),
                position=_position(requested),
                reason=requested.get("reason") or "",
                actor=actor,
                command=command,
            )
        case CommandKind.PAUSE_TASK:
            reason = requested.get("reason")
            return actions.pause_task(
                _given(requested, "task"), reason=reason, actor=actor, command=command
            )
        case CommandKind.RESTART_TASK:
            reason = requested.get("reason")
            return actions.restart_task(
                _given(requested, "task"), reason=reason, actor=actor, command=command
            )
        case CommandKind.SET_POLICY:
            return actions.set_policy(
                _given(requested, "application"),
                pipeline=_given(requested, "pipeline"),
                stage=_given(requested, "stage"),
                answer=_answer(requested),
                reason=requested.get("reason") or "",
                actor=actor,
                command=command,
            )
        case CommandKind.SHUT_DOWN_APPLICATION:
            reason = requested.get("reason") or ""
            application = _given(requested, "application")
            return actions.shut_down_application(
                application, reason=reason, actor=actor, command=command
            )
        case CommandKind.START_APPLICATION:
            reason = requested.get("reason")
            return actions.start_application(
                _given(requested, "application"), reason=reason, actor=actor, command=command
            )


def _given(requested: dict[str, Any], name: str) -> str:
    value: str | None = requested.get(name)
    if not value:
        raise InvalidValue(name, value, f"what {requested['kind']} is for")
    return value


def _answer(requested: dict[str, Any]) -> StageAnswer | None:
    """Return the requested answer; null removes the override, a missing answer is an error."""
    if "answer" not in requested:
        raise InvalidValue("answer", None, "CONTINUE, RETRY, PAUSE, FAIL, or null: as in the code")
    value: StageAnswer | None = requested["answer"]
    return value


def _position(requested: dict[str, Any]) -> int:
    value: int | None = requested.get("position")
    if value is None:
        raise InvalidValue("position", value, "the position that the task resumes at")
    return value

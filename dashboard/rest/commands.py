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
        wish = asked(serializers.NewCommand, request.data)
        state = _issue(request, wish)
        status = 201 if state.status.final else 202
        return Response(serializers.Command(state).data, status=status)


class Command(View):
    """One command."""

    @extend_schema(responses={200: serializers.Command} | PROBLEMS)
    def get(self, request: Request, id: UUID) -> Response:
        """Return one command: poll it until its status is final."""
        return Response(serializers.Command(queries.command(id)).data)


def _issue(request: Request, wish: dict[str, Any]) -> CommandState:
    actor, command = request.user.get_username(), command_id(request, wish)
    match CommandKind(wish["kind"]):
        case CommandKind.RESUME_TASK:
            reason = wish.get("reason")
            return actions.resume_task(
                _given(wish, "task"), reason=reason, actor=actor, command=command
            )
        case CommandKind.SKIP_RECORD:
            reason = wish.get("reason") or ""
            return actions.skip_record(
                _given(wish, "task"), reason=reason, actor=actor, command=command
            )
        case CommandKind.RESUME_AT:
            return actions.resume_task_at(
                _given(wish, "task"),
                position=_position(wish),
                reason=wish.get("reason") or "",
                actor=actor,
                command=command,
            )
        case CommandKind.PAUSE_TASK:
            reason = wish.get("reason")
            return actions.pause_task(
                _given(wish, "task"), reason=reason, actor=actor, command=command
            )
        case CommandKind.RESTART_TASK:
            reason = wish.get("reason")
            return actions.restart_task(
                _given(wish, "task"), reason=reason, actor=actor, command=command
            )
        case CommandKind.SET_POLICY:
            return actions.set_policy(
                _given(wish, "application"),
                pipeline=_given(wish, "pipeline"),
                stage=_given(wish, "stage"),
                answer=_answer(wish),
                reason=wish.get("reason") or "",
                actor=actor,
                command=command,
            )
        case CommandKind.SHUT_DOWN_APPLICATION:
            reason = wish.get("reason") or ""
            application = _given(wish, "application")
            return actions.shut_down_application(
                application, reason=reason, actor=actor, command=command
            )
        case CommandKind.START_APPLICATION:
            reason = wish.get("reason")
            return actions.start_application(
                _given(wish, "application"), reason=reason, actor=actor, command=command
            )


def _given(wish: dict[str, Any], name: str) -> str:
    value: str | None = wish.get(name)
    if not value:
        raise InvalidValue(name, value, f"what {wish['kind']} is for")
    return value


def _answer(wish: dict[str, Any]) -> StageAnswer | None:
    """Return the requested answer; null removes the override, a missing answer is an error."""
    if "answer" not in wish:
        raise InvalidValue("answer", None, "CONTINUE, RETRY, PAUSE, FAIL, or null: as in the code")
    value: StageAnswer | None = wish["answer"]
    return value


def _position(wish: dict[str, Any]) -> int:
    value: int | None = wish.get("position")
    if value is None:
        raise InvalidValue("position", value, "the position that the task resumes at")
    return value

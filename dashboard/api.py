"""REST: the same reads and actions as the pages, for programs. Views unpack, call one, answer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any
from uuid import UUID, uuid5

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework import serializers as fields
from rest_framework.exceptions import ValidationError
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane import actions, queries
from controlplane.domain.errors import InvalidValue
from controlplane.domain.events import CommandKind, StageAnswer
from controlplane.domain.ids import uuid7
from controlplane.domain.states import CommandState, GroupState
from dashboard import serializers
from dashboard.people import NOT_AN_OPERATOR, person

_KEYS = UUID("018f2f5e-3f6b-7c51-9d3a-6c1f0b5a4e22")
PROBLEMS = {400: serializers.Problem, 403: serializers.Problem, 404: serializers.Problem}
#: Of what can be asked for as it was.
PAST = PROBLEMS | {410: serializers.Problem}

IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="In place of `id`: the same key by the same user at the same address is the same"
    " act. 400 when it was another one; known as long as `ARRESTER_REPLAY_DAYS`.",
)


class HasRole(BasePermission):
    """Viewers read, operators act too; an account without a role does neither."""

    message = NOT_AN_OPERATOR

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return whether the role is enough for the method."""
        who = person(request.user)
        return who is not None and (request.method in SAFE_METHODS or who.may_act)


class View(APIView):
    """Base of the views: who may."""

    permission_classes = (HasRole,)


@cache
def page_of(row: type[fields.Serializer[Any]]) -> fields.Serializer[Any]:
    """Return the schema of a page of rows."""
    return inline_serializer(
        f"{row.__name__}Page",
        {"results": row(many=True), "next": fields.CharField(allow_null=True)},
    )


def asked(form: type[fields.Serializer[Any]], given: Any) -> dict[str, Any]:
    """Return the values of a request; raise InvalidValue for the first that may not be so.

    A name that is not known is refused too: a misspelt filter would answer with everything.
    """
    if not isinstance(given, Mapping):
        raise InvalidValue("body", given, "a JSON object")
    filled = form(data=given)
    for name in given:
        if name not in filled.fields:
            raise InvalidValue(name, given[name], f"one of {', '.join(filled.fields)}")
    try:
        filled.is_valid(raise_exception=True)
    except ValidationError:
        name, problems = next(iter(filled.errors.items()))
        allowed = " ".join(str(problem) for problem in problems)
        raise InvalidValue(name, given.get(name), allowed) from None
    return dict(filled.validated_data)


def paged(page: queries.Page[Any], row: type[fields.Serializer[Any]]) -> Response:
    """Return a page of rows as an answer."""
    return Response({"results": row(page.rows, many=True).data, "next": page.next})


def when_asked(wanted: dict[str, Any]) -> queries.AsOf | None:
    """Take `as_of` out of what is wanted; None means now."""
    text = wanted.pop("as_of", None)
    return None if text is None else queries.as_of(text)


class Applications(View):
    """All applications."""

    @extend_schema(
        operation_id="applications_list",
        parameters=[serializers.AsOfQuery],
        responses={200: serializers.Application(many=True)} | PAST,
    )
    def get(self, request: Request) -> Response:
        """List all applications by name."""
        when = when_asked(asked(serializers.AsOfQuery, request.query_params))
        found = queries.past.applications(when) if when else queries.applications()
        return Response(serializers.Application(found, many=True).data)


class Application(View):
    """One application."""

    @extend_schema(
        parameters=[serializers.AsOfQuery], responses={200: serializers.Application} | PAST
    )
    def get(self, request: Request, name: str) -> Response:
        """Return one application."""
        when = when_asked(asked(serializers.AsOfQuery, request.query_params))
        found = queries.past.application(name, when) if when else queries.application(name)
        return Response(serializers.Application(found).data)


class Tasks(View):
    """Tasks, from their first failure on."""

    @extend_schema(
        operation_id="tasks_list",
        parameters=[serializers.TaskQuery],
        responses={200: page_of(serializers.Task)} | PAST,
    )
    def get(self, request: Request) -> Response:
        """List tasks of all checkpoints, also of those that no run uses any more.

        One that never failed is RUNNING and has no row.
        """
        wanted = asked(serializers.TaskQuery, request.query_params)
        when, cursor, limit = when_asked(wanted), wanted.pop("cursor", None), wanted.pop("limit")
        filter = queries.TaskFilter(**wanted)
        page = (
            queries.past.tasks(filter, when, cursor=cursor, limit=limit)
            if when
            else queries.tasks(filter, cursor=cursor, limit=limit)
        )
        return paged(page, serializers.Task)


class Task(View):
    """One task."""

    @extend_schema(parameters=[serializers.AsOfQuery], responses={200: serializers.Task} | PAST)
    def get(self, request: Request, digest: str) -> Response:
        """Return one task by its id."""
        when = when_asked(asked(serializers.AsOfQuery, request.query_params))
        found = queries.past.task(digest, when) if when else queries.task(digest)
        return Response(serializers.Task(found.state).data)


class Failures(View):
    """Failed records."""

    @extend_schema(
        parameters=[serializers.FailureQuery],
        responses={200: page_of(serializers.Failure)} | PROBLEMS,
    )
    def get(self, request: Request) -> Response:
        """List failures, newest first.

        Each row stands for `count` failed records; their sum over all pages is exact.
        """
        wanted = asked(serializers.FailureQuery, request.query_params)
        cursor, limit = wanted.pop("cursor", None), wanted.pop("limit")
        page = queries.failures(queries.FailureFilter(**wanted), cursor=cursor, limit=limit)
        return paged(page, serializers.Failure)


class ErrorGroups(View):
    """Failed records by cause."""

    @extend_schema(
        operation_id="errors_list",
        parameters=[serializers.GroupQuery],
        responses={200: page_of(serializers.ErrorGroup)} | PAST,
    )
    def get(self, request: Request) -> Response:
        """List error groups, those that failed last first."""
        wanted = asked(serializers.GroupQuery, request.query_params)
        names: list[str] = [name for name in ("sort", "cursor", "limit") if name in wanted]
        rest = {name: wanted.pop(name) for name in names}
        if when := when_asked(wanted):
            return paged(_past_groups(wanted, when, rest), serializers.ErrorGroup)
        return paged(queries.groups(queries.GroupFilter(**wanted), **rest), serializers.ErrorGroup)


def _past_groups(
    wanted: dict[str, Any], when: queries.AsOf, rest: dict[str, Any]
) -> queries.Page[GroupState]:
    if rest.pop("sort") != queries.NEWEST or wanted.keys() - {"application", "text"}:
        allowed = "application, text, cursor and limit beside it: the past has one order"
        raise InvalidValue("as_of", str(when), allowed)
    application = wanted.pop("application", None)
    return queries.past.groups(application, when, **wanted, **rest)


class Commands(View):
    """What people asked for."""

    @extend_schema(
        operation_id="commands_list",
        parameters=[serializers.CommandQuery],
        responses={200: page_of(serializers.Command)} | PROBLEMS,
    )
    def get(self, request: Request) -> Response:
        """List commands, newest first."""
        wanted = asked(serializers.CommandQuery, request.query_params)
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
        """Issue a command: 202 while it waits for an answer, 201 when it is done already.

        409 when the state forbids it; the refused command is in the log too.
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
    """Return the answer to set; null takes it back, and leaving it out is no answer."""
    if "answer" not in wish:
        raise InvalidValue("answer", None, "CONTINUE, RETRY, PAUSE, FAIL, or null: as in the code")
    value: StageAnswer | None = wish["answer"]
    return value


def _position(wish: dict[str, Any]) -> int:
    value: int | None = wish.get("position")
    if value is None:
        raise InvalidValue("position", value, "the position that the task shall go on at")
    return value


def command_id(request: Request, wish: dict[str, Any]) -> UUID:
    """Return the id that a request gives, or that its key stands for, or a new one."""
    if "id" in wish:
        given: UUID = wish["id"]
        return given
    key = request.headers.get("Idempotency-Key")
    if key:
        return uuid5(_KEYS, f"{request.user.pk}\0{request.method} {request.path}\0{key}")
    return uuid7(timezone.now())

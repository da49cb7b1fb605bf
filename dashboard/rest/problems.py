"""The answers to errors: problem details (RFC 9457), and their description."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from django.db import DataError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt
from rest_framework import serializers
from rest_framework.exceptions import APIException
from rest_framework.response import Response
from rest_framework.views import exception_handler

from arrester.controlplane.web.problem_details import MEDIA_TYPE, PREFIX, encodable, problem
from arrester.dashboard.http_errors import (
    INVALID_VALUE,
    NOT_A_VALUE,
    UNAVAILABLE,
    headers,
    kind_of,
    unanswered,
)
from arrester.dashboard.rest.struct_serializers import StructSerializer
from arrester.domain.errors import (
    ArresterError,
    BeforeHistory,
    CommandForbidden,
    GroupActForbidden,
    InvalidValue,
    PendingCommand,
    RedisUnavailable,
)

#: The titles of the codes of Django REST framework.
_TITLES = {
    "authentication_failed": "The token or the session is not valid",
    "method_not_allowed": "The endpoint does not have this method",
    "not_acceptable": "No media type of the Accept header is possible",
    "not_authenticated": "A token or a session is required",
    "not_found": "There is no such thing",
    "parse_error": "The body is not JSON",
    "permission_denied": "The role or the scope does not suffice",
    "throttled": "Too many requests",
    "unsupported_media_type": "The body is not application/json",
}


class PendingCommandSerializer(StructSerializer):
    class Meta:
        struct = PendingCommand
        fields = ("id", "kind", "actor", "issued_at")


class ProblemSerializer(serializers.Serializer[Any]):
    """Problem details of an error (RFC 9457)."""

    type = serializers.CharField(help_text="`urn:arrester:problem:` and the code.")
    title = serializers.CharField(help_text="The meaning of the code, in words.")
    status = serializers.IntegerField(help_text="The HTTP status.")
    detail = serializers.CharField(help_text="What is wrong with this request, in words.")
    code = serializers.CharField(
        help_text="The kind of error, for programs: see docs/reference/rest.md."
    )
    param = serializers.CharField(required=False, help_text="The name of the invalid value.")
    value = serializers.JSONField(required=False, help_text="The invalid value.")
    allowed = serializers.CharField(required=False, help_text="The allowed values.")
    state = serializers.CharField(required=False, help_text="The state that forbids the act.")
    command = serializers.UUIDField(required=False, help_text="The id of the refused command.")
    pending = PendingCommandSerializer(
        required=False, help_text="The command in progress that forbids this one, if any."
    )
    service = serializers.CharField(
        required=False, help_text="The service that does not answer: postgres or redis."
    )
    oldest_at = serializers.DateTimeField(
        required=False, allow_null=True, help_text="The oldest known time."
    )
    sequence = serializers.IntegerField(
        required=False, help_text="The log position of the state, or the oldest known one."
    )


def problems(*statuses: int) -> dict[Any, Any]:
    """Return the responses of errors, by status and media type."""
    return {(status, MEDIA_TYPE): ProblemSerializer for status in statuses}


#: The responses of every endpoint, by status and media type.
PROBLEMS = problems(400, 401, 403, 404, 429, 503)
#: The responses of acts that the state may forbid.
REFUSED = PROBLEMS | problems(409)
#: Those of acts, whose ids may have come with another request.
ACTS = PROBLEMS | problems(422)
#: The responses of endpoints with past states.
PAST = PROBLEMS | problems(410)


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """Convert an exception of a view into a response; None results in a 500."""
    match error:
        case ArresterError():
            return _response(_members(error), headers(error))
        case DataError():
            return _response(problem(*INVALID_VALUE, NOT_A_VALUE))
        case OperationalError():
            detail = unanswered(error, context["request"].method)
            found = problem(*UNAVAILABLE, detail) | {"service": "postgres"}
            return _response(found, {"Retry-After": "5"})
    response = exception_handler(error, context)
    if response is None:
        return None
    code = getattr(error, "default_code", "not_found")
    if isinstance(error, APIException) and isinstance(error.detail, str):
        code = error.detail.code
    detail = response.data["detail"] if isinstance(response.data, dict) else str(error)
    title = _TITLES.get(code, "The request failed")
    # Of its headers these two are for clients: when to repeat, and how to authenticate.
    names = {"Retry-After", "WWW-Authenticate"} & {*response.headers}
    kept = {name: response.headers[name] for name in names}
    return _response(problem(response.status_code, code, title, detail), kept)


@csrf_exempt
def unversioned(request: HttpRequest, path: str) -> HttpResponse:
    """Redirect a path of release 0.2.0, which had no version, with its method and body."""
    if path.startswith("v1/"):
        return unknown(request, path)
    target, mark, query = request.get_full_path().partition("?")
    target = target.replace("/api/", PREFIX, 1)
    if target.endswith("/threads"):
        target = target.removesuffix("threads") + "runs"
    target += mark + query
    return HttpResponse(status=308, headers={"Location": target})


@csrf_exempt
def unknown(request: HttpRequest, path: str) -> HttpResponse:
    """Answer for a path that is not an endpoint."""
    detail = f"no endpoint {request.path}; see {PREFIX}docs/"
    return _json(problem(404, "not_found", _TITLES["not_found"], detail))


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer a request that raised an unexpected exception, which Django has logged."""
    if not request.path.startswith(PREFIX):
        return defaults.server_error(request)
    detail = "An unexpected error; the log of the server has it."
    return _json(problem(500, "internal_error", "The server failed", detail))


def _response(members: dict[str, Any], with_headers: dict[str, str] | None = None) -> Response:
    return Response(members, members["status"], headers=with_headers, content_type=MEDIA_TYPE)


def _json(members: dict[str, Any]) -> HttpResponse:
    return JsonResponse(members, status=members["status"], content_type=MEDIA_TYPE)


def _members(error: ArresterError) -> dict[str, Any]:
    """Return the problem details of an error of ours."""
    found = problem(*kind_of(error), str(error))
    match error:
        case InvalidValue():
            found |= {
                "param": encodable(error.name),
                "value": _plain(error.value),
                "allowed": encodable(error.allowed),
            }
        case BeforeHistory():
            oldest = None if error.moment is None else error.moment.isoformat()
            found |= {"oldest_at": oldest, "sequence": error.position}
        case CommandForbidden() | GroupActForbidden():
            found |= {"state": error.state, "sequence": error.sequence}
            if isinstance(error, CommandForbidden):
                if error.command is not None:
                    found["command"] = str(error.command)
                if error.pending is not None:
                    found["pending"] = msgspec.to_builtins(error.pending)
        case RedisUnavailable():
            found |= {"service": "redis"}
    return found


def _plain(value: object) -> object:
    """Return `value` for JSON: without infinity and unpaired surrogates."""
    if isinstance(value, int | None) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return encodable(str(value))

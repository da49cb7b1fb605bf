"""The HTTP status of each of our errors, for REST and pages."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.db import DataError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from psycopg.errors import QueryCanceled
from rest_framework.permissions import SAFE_METHODS
from rest_framework.response import Response
from rest_framework.views import exception_handler

from arrester.controlplane.dead_letter_records import RecordUnavailable
from arrester.controlplane.redis import reachability
from arrester.controlplane.web.connection_pool.base import STATEMENT_SECONDS
from arrester.domain.errors import (
    ArresterError,
    BeforeHistory,
    BrokenState,
    CommandForbidden,
    GroupActForbidden,
    InvalidConfiguration,
    InvalidValue,
    LockedOut,
    MalformedBatch,
    NotFound,
    NotPermitted,
    NotVerified,
    RedisUnavailable,
    StartRefused,
)

STATUS_CODES: dict[type[ArresterError], int] = {
    StartRefused: 409,
    BeforeHistory: 410,
    BrokenState: 503,
    RecordUnavailable: 404,
    CommandForbidden: 409,
    GroupActForbidden: 409,
    InvalidConfiguration: 400,
    InvalidValue: 400,
    LockedOut: 429,
    MalformedBatch: 400,
    NotFound: 404,
    NotPermitted: 403,
    RedisUnavailable: 503,
    NotVerified: 409,
}
NOT_A_VALUE = "a value that PostgreSQL cannot store: a NUL character, or too large a number"
UNREACHABLE = (
    "PostgreSQL does not answer. Pipelines keep running; their events are processed later."
)
TOO_LONG = (
    f"The answer takes longer than {STATEMENT_SECONDS} s. Ask for less: a shorter time, one"
    " application, a filter."
)
#: A commit may be executed without an answer.
UNKNOWN = (
    "PostgreSQL does not answer. It is unknown whether the request was executed: see Commands or"
    " Audit when PostgreSQL answers again. A repeated act with the same id, such as the same form,"
    " is not executed twice."
)


def status_code(error: ArresterError) -> int:
    """Return the status of `error`, by its nearest class in the table."""
    return next(STATUS_CODES[cls] for cls in type(error).__mro__ if cls in STATUS_CODES)


def headers(error: ArresterError) -> dict[str, str]:
    """Return the headers of the response for `error`."""
    if not isinstance(error, LockedOut):
        return {}
    seconds = (error.until - datetime.now(UTC)).total_seconds()
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def unreachable(method: str | None) -> str:
    """Return the message of a request with this HTTP method that PostgreSQL did not answer."""
    last = reachability.postgres_seen()
    seen = f" Its last answer was at {last:%H:%M:%S} UTC." if last else ""
    cause = reachability.postgres_cause()
    return (UNREACHABLE if method in SAFE_METHODS else UNKNOWN) + seen + (cause and f" {cause}")


def unanswered(error: OperationalError, method: str | None) -> str:
    """Return the message of a request that PostgreSQL did not answer, or not within the limit."""
    return TOO_LONG if isinstance(error.__cause__, QueryCanceled) else unreachable(method)


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """Convert an exception of a REST view into a response; None results in a 500."""
    if isinstance(error, ArresterError):
        return Response(_problem(error), status=status_code(error), headers=headers(error))
    if isinstance(error, DataError):
        return Response({"detail": NOT_A_VALUE}, status=400)
    if isinstance(error, OperationalError):
        problem = {"detail": unanswered(error, context["request"].method), "service": "postgres"}
        return Response(problem, status=503, headers={"Retry-After": "5"})
    return exception_handler(error, context)


@csrf_exempt
def unversioned(request: HttpRequest, path: str) -> HttpResponse:
    """Redirect a path of release 0.2.0, which had no version, with its method and body."""
    if path.startswith("v1/"):
        return unknown(request, path)
    target = request.get_full_path().replace("/api/", "/api/v1/", 1)
    return HttpResponse(status=308, headers={"Location": target})


@csrf_exempt
def unknown(request: HttpRequest, path: str) -> JsonResponse:
    """Answer for a path that is not an endpoint."""
    return JsonResponse({"detail": f"no endpoint {request.path}; see /api/v1/docs/"}, status=404)


def _problem(error: ArresterError) -> dict[str, Any]:
    problem: dict[str, Any] = {"detail": _encodable(str(error))}
    match error:
        case InvalidValue():
            problem |= {
                "field": _encodable(error.name),
                "value": _plain(error.value),
                "allowed": _encodable(error.allowed),
            }
        case BeforeHistory():
            oldest = None if error.moment is None else error.moment.isoformat()
            problem |= {"oldest": oldest, "position": error.position}
        case CommandForbidden() | GroupActForbidden():
            problem |= {"state": error.state, "position": error.sequence}
            if isinstance(error, CommandForbidden) and error.pending is not None:
                problem["pending"] = msgspec.to_builtins(error.pending)
        case RedisUnavailable():
            problem |= {"service": "redis"}
    return problem


def _plain(value: object) -> object:
    """Return `value` for JSON: without infinity and unpaired surrogates."""
    if isinstance(value, int | None) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return _encodable(str(value))


def _encodable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()

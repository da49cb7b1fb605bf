"""The HTTP status of each of our errors, for REST and pages."""

from __future__ import annotations

import math
from typing import Any

from django.db import DataError, OperationalError
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from rest_framework.response import Response
from rest_framework.views import exception_handler

from arrester.controlplane.domain.errors import (
    ApplicationLatched,
    ArresterError,
    BeforeHistory,
    BrokenState,
    CommandRefused,
    GroupRefused,
    InvalidConfiguration,
    InvalidValue,
    MalformedBatch,
    NotFound,
    NotVerified,
    RedisAway,
)

STATUS_CODES: dict[type[ArresterError], int] = {
    ApplicationLatched: 409,
    BeforeHistory: 410,
    BrokenState: 503,
    CommandRefused: 409,
    GroupRefused: 409,
    InvalidConfiguration: 400,
    InvalidValue: 400,
    MalformedBatch: 400,
    NotFound: 404,
    RedisAway: 503,
    NotVerified: 409,
}
NOT_A_VALUE = "a value that PostgreSQL cannot hold: a NUL, or a number too large"
AWAY = "PostgreSQL does not answer; pipelines keep running and their events wait"


def status_code(error: ArresterError) -> int:
    """Return the status of `error`, by its nearest class in the table."""
    return next(STATUS_CODES[cls] for cls in type(error).__mro__ if cls in STATUS_CODES)


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """Convert an exception of a REST view into a response; None results in a 500."""
    if isinstance(error, ArresterError):
        return Response(_said(error), status=status_code(error))
    if isinstance(error, DataError):
        return Response({"detail": NOT_A_VALUE}, status=400)
    if isinstance(error, OperationalError):
        return Response({"detail": AWAY}, status=503, headers={"Retry-After": "5"})
    return exception_handler(error, context)


@csrf_exempt
def unknown(request: HttpRequest, path: str) -> JsonResponse:
    """Answer for a path that is not an endpoint."""
    return JsonResponse(
        {"detail": f"there is no {request.path}; /api/docs/ has what there is"}, status=404
    )


def _said(error: ArresterError) -> dict[str, Any]:
    said: dict[str, Any] = {"detail": _encodable(str(error))}
    match error:
        case InvalidValue():
            said |= {
                "field": _encodable(error.name),
                "value": _plain(error.value),
                "allowed": _encodable(error.allowed),
            }
        case BeforeHistory():
            oldest = None if error.moment is None else error.moment.isoformat()
            said |= {"oldest": oldest, "position": error.position}
        case CommandRefused() | GroupRefused():
            said |= {"state": error.state, "position": error.sequence}
    return said


def _plain(value: object) -> object:
    """Return `value` for JSON: without infinity and unpaired surrogates."""
    if isinstance(value, int | None) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return _encodable(str(value))


def _encodable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()

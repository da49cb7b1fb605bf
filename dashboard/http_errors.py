"""The HTTP status and the code of each of our errors, for REST and pages."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import NamedTuple

from django.db import OperationalError
from psycopg.errors import QueryCanceled
from rest_framework.permissions import SAFE_METHODS

from arrester.controlplane.dead_letter_records import RecordUnavailable
from arrester.controlplane.queries.event_table import NotInstalled
from arrester.controlplane.redis import reachability
from arrester.controlplane.web.connection_pool.base import STATEMENT_SECONDS
from arrester.domain.errors import (
    ArresterError,
    BeforeHistory,
    BrokenState,
    CommandForbidden,
    GroupActForbidden,
    IdReused,
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


class ErrorKind(NamedTuple):
    """How the errors of a class are answered."""

    status: int
    #: For programs: it never changes within a version of REST.
    code: str
    #: The meaning of the code.
    title: str


INVALID_VALUE = ErrorKind(400, "invalid_value", "A value is not allowed")
UNAVAILABLE = ErrorKind(503, "service_unavailable", "A service does not answer")
#: The kind of each class of errors.
ERROR_KINDS: dict[type[ArresterError], ErrorKind] = {
    StartRefused: ErrorKind(409, "application_latched", "The application is shut down"),
    BeforeHistory: ErrorKind(410, "before_history", "The log does not reach back so far"),
    BrokenState: ErrorKind(503, "unreadable_state", "A stored state cannot be read"),
    RecordUnavailable: ErrorKind(404, "record_unavailable", "The record cannot be read"),
    CommandForbidden: ErrorKind(409, "command_forbidden", "The state forbids the command"),
    GroupActForbidden: ErrorKind(409, "act_forbidden", "The state forbids the act"),
    IdReused: ErrorKind(422, "id_reused", "Another request had this id"),
    InvalidConfiguration: INVALID_VALUE,
    InvalidValue: INVALID_VALUE,
    LockedOut: ErrorKind(429, "locked_out", "Too many wrong passwords"),
    MalformedBatch: ErrorKind(400, "malformed_batch", "The bytes are not a batch of events"),
    NotFound: ErrorKind(404, "not_found", "There is no such thing"),
    NotInstalled: ErrorKind(501, "not_installed", "A library of the server is missing"),
    NotPermitted: ErrorKind(403, "permission_denied", "The role does not suffice"),
    RedisUnavailable: UNAVAILABLE,
    NotVerified: ErrorKind(409, "not_verified", "The log and the views differ"),
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


def kind_of(error: ArresterError) -> ErrorKind:
    """Return the kind of `error`, by its nearest class in the table."""
    return next(ERROR_KINDS[cls] for cls in type(error).__mro__ if cls in ERROR_KINDS)


def status_code(error: ArresterError) -> int:
    """Return the HTTP status of `error`."""
    return kind_of(error).status


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

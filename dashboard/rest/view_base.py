"""The base of all endpoints: permissions, pages, parameters, ids of acts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any
from uuid import UUID, uuid5

from django.http import QueryDict
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, inline_serializer
from rest_framework import serializers as fields
from rest_framework.exceptions import ValidationError
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.views import APIView

from arrester.controlplane import queries
from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.domain.identity.uuids import uuid7
from arrester.dashboard.permissions import NOT_AN_OPERATOR, person
from arrester.dashboard.rest import serializers

_KEYS = UUID("018f2f5e-3f6b-7c51-9d3a-6c1f0b5a4e22")
PROBLEMS = dict.fromkeys((400, 401, 403, 404), serializers.Problem)
#: The responses of endpoints with past states.
PAST = PROBLEMS | {410: serializers.Problem}

IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="In place of `id`: the same key by the same user at the same address is the same"
    " act. 400 when it was another one; known as long as `ARRESTER_REPLAY_DAYS`.",
)


class HasRole(BasePermission):
    """Viewers read, operators also act; an account without a role does neither."""

    message = NOT_AN_OPERATOR

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return whether the role suffices for the method."""
        who = person(request.user)
        return who is not None and (request.method in SAFE_METHODS or who.may_act)


class MayRead(BasePermission):
    """Every role may read, also by POST."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return whether there is a role."""
        return person(request.user) is not None


class View(APIView):
    """Base of the views, with permissions."""

    permission_classes: tuple[type[BasePermission], ...] = (HasRole,)


@cache
def page_of(row: type[fields.Serializer[Any]]) -> fields.Serializer[Any]:
    """Return the schema of a page of rows."""
    return inline_serializer(
        f"{row.__name__}Page",
        {"results": row(many=True), "next": fields.CharField(allow_null=True)},
    )


def asked(form: type[fields.Serializer[Any]], given: Any) -> dict[str, Any]:
    """Return the values of a request; raise InvalidValue for the first invalid one.

    An unknown name is refused too: a misspelt filter would return everything.
    """
    if not isinstance(given, Mapping):
        raise InvalidValue("body", given, "a JSON object")
    filled = form(data=given)
    for name in given:
        if name not in filled.fields:
            raise InvalidValue(name, given[name], f"one of {', '.join(filled.fields)}")
        if isinstance(given, QueryDict) and len(given.getlist(name)) > 1:
            raise InvalidValue(name, ", ".join(given.getlist(name)), "one value, given once")
    try:
        filled.is_valid(raise_exception=True)
    except ValidationError:
        name, allowed = _first_wrong(filled.errors)
        raise InvalidValue(name, given.get(name.partition("[")[0]), allowed) from None
    wanted = dict(filled.validated_data)
    since, until = wanted.get("since"), wanted.get("until")
    if since is not None and until is not None and since > until:
        raise InvalidValue("since", given["since"], f"a time before until, {given['until']}")
    return wanted


def listed(form: type[fields.Serializer[Any]], request: Request) -> dict[str, Any]:
    """Return the parameters of a list; raise NotFound for an unknown application: an empty list
    for a misspelt name would look like success."""
    wanted = asked(form, request.query_params)
    if "application" in wanted:
        queries.check_known(wanted["application"])
    return wanted


def _first_wrong(errors: Any, name: str = "") -> tuple[str, str]:
    """Return the name of the first invalid value, `groups[0].application`, and the reason."""
    if isinstance(errors, Mapping):
        inner, problems = next(iter(errors.items()))
        if isinstance(inner, int):
            return _first_wrong(problems, f"{name}[{inner}]")
        if inner == api_settings.NON_FIELD_ERRORS_KEY:
            return _first_wrong(problems, name)
        return _first_wrong(problems, f"{name}.{inner}" if name else inner)
    return name, " ".join(str(problem) for problem in errors)


def paged(page: queries.Page[Any], row: type[fields.Serializer[Any]]) -> Response:
    """Return a page of rows as a response."""
    return Response({"results": row(page.rows, many=True).data, "next": page.next})


def when_asked(wanted: dict[str, Any]) -> queries.AsOf | None:
    """Remove `as_of` from the parameters and return it; None means now."""
    text = wanted.pop("as_of", None)
    return None if text is None else queries.as_of(text)


def command_id(request: Request, requested: dict[str, Any]) -> UUID:
    """Return the id of a request, or one derived from its key, or a new one."""
    if "id" in requested:
        given: UUID = requested["id"]
        return given
    key = request.headers.get("Idempotency-Key")
    if key:
        return uuid5(_KEYS, f"{request.user.pk}\0{request.method} {request.path}\0{key}")
    return uuid7(timezone.now())

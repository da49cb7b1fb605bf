"""The base of all endpoints: permissions, parameters, pages, past states, ids of acts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from hashlib import sha256
from inspect import getdoc
from typing import Any, ClassVar, TypeVar, cast
from uuid import UUID, uuid5

import msgspec
from django.http import HttpRequest, HttpResponseBase, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.utils.cache import get_conditional_response, set_response_etag
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from arrester.controlplane import access, actions, queries
from arrester.controlplane.access import Person
from arrester.controlplane.models import RestToken
from arrester.dashboard.permissions import NOT_AN_ADMIN, NOT_AN_OPERATOR, person
from arrester.dashboard.rest.authentication import Throttle, check_scope
from arrester.dashboard.rest.field_types import check_types, first_invalid, value_at
from arrester.dashboard.rest.problems import ACTS, PAST, PROBLEMS
from arrester.dashboard.rest.struct_serializers import FilterSerializer
from arrester.domain.errors import InvalidValue, NotFound
from arrester.domain.identity.uuids import uuid7

_KEYS = UUID("018f2f5e-3f6b-7c51-9d3a-6c1f0b5a4e22")
LIMIT, MOST = 50, 500
#: Where a request keeps its person, and the id of an act that no request had before.
_PERSON, _FIRST = "arrester.person", "arrester.first"
A_LIMIT: dict[str, Any] = dict.fromkeys(
    ("invalid", "min_value", "max_value"), f"a whole number from 1 to {MOST}"
)
AN_ID = "Repeating it has no further effect. Alternative: an Idempotency-Key."
SerializerClass = type[serializers.Serializer[Any]]
Found = TypeVar("Found")
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


class AsOfQuerySerializer(FilterSerializer):
    """A point in time: by default now."""

    as_of = serializers.CharField(
        required=False,
        help_text="A time of the server, an age (5m), a log position of one application (@18233),"
        " or last-command: before the application's newest command.",
    )


class PageQuerySerializer(FilterSerializer):
    """The page of a list."""

    cursor = serializers.CharField(required=False, help_text="`next` of the previous page.")
    limit = serializers.IntegerField(
        required=False, default=LIMIT, min_value=1, max_value=MOST, error_messages=A_LIMIT
    )


class ApplicationQuerySerializer(PageQuerySerializer):
    """The filter of a list by application."""

    application = serializers.CharField(required=False)


IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="In place of `id`: the same key by the same user at the same address is the same"
    " act. 422 if its body was another one. Known for `ARRESTER_REPLAY_DAYS`.",
)


def person_of(request: Request) -> Person | None:
    """Return the account or token of a request with its roles; None: it may see nothing."""
    meta = request._request.META
    if _PERSON not in meta:
        token = request.auth
        meta[_PERSON] = person(request.user, token if isinstance(token, RestToken) else None)
    who: Person | None = meta[_PERSON]
    return who


class HasRole(BasePermission):
    """Viewers read, operators also act; an account without a role does neither."""

    message = NOT_AN_OPERATOR

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return whether a role suffices for the method; acts check that of their application."""
        who = person_of(request)
        return who is not None and (request.method in SAFE_METHODS or who.may_act)


class MayActOnAll(BasePermission):
    """Operators and admins of all applications, also by GET."""

    message = NOT_AN_OPERATOR

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return whether the role on all applications is operator or admin."""
        who = person_of(request)
        return who is not None and who.may_act_on_all


class MayRead(BasePermission):
    """Every role may read, also by POST."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return whether there is a role."""
        return person_of(request) is not None


class MayAdministrate(BasePermission):
    """Admins of all applications only."""

    message = NOT_AN_ADMIN

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return whether the role on all applications is admin."""
        who = person_of(request)
        return who is not None and who.is_admin


class MayAdministrateAny(BasePermission):
    """Admins of any application; acts check the role on their application."""

    message = NOT_AN_ADMIN

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return whether any role is admin."""
        who = person_of(request)
        return who is not None and who.is_any_admin


class RestView(APIView):
    """Base of the views, with permissions and a limit of requests."""

    permission_classes: tuple[type[BasePermission], ...] = (HasRole,)
    throttle_classes = (Throttle,)
    #: Whether the endpoint only reads, also by POST.
    only_reads = False

    def check_permissions(self, request: Request) -> None:
        """Raise PermissionDenied if the role, or the scope of the token, does not suffice.

        From here on the request reads only what the person may see.
        """
        super().check_permissions(request)
        check_scope(request, reads=self.only_reads)
        access.enter(person_of(request))

    def handle_exception(self, exc: Exception) -> Response:
        """Return the answer to an error; the id of a request that had no effect is free again."""
        first = self.request._request.META.get(_FIRST)
        if first is not None and isinstance(exc, InvalidValue | NotFound):
            actions.forget_request(first)
        return super().handle_exception(exc)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Give what was read an ETag; 304 without content if the client has it."""
        final: Any = super().finalize_response(request, response, *args, **kwargs)
        is_read = request.method in SAFE_METHODS and isinstance(final, Response)
        if is_read and final.status_code == 200:
            final.add_post_render_callback(partial(_with_etag, request._request))
        return final


def _with_etag(request: HttpRequest, response: Any) -> HttpResponseBase | None:
    tagged: Any = set_response_etag(response)
    return get_conditional_response(request, etag=tagged["ETag"], response=tagged)


def at(response: Response, name: str, *parts: object) -> Response:
    """Return the response with the URL of what it created, or of what will have the result."""
    response["Location"] = reverse(name, args=parts)
    return response


def acts(
    form: SerializerClass,
    result: Any,
    problems: dict[int, Any] = PROBLEMS,
    operation_id: str | None = None,
) -> Callable[[Endpoint], Endpoint]:
    """Describe an endpoint of an act: `result` is its response, or the responses by status."""
    results = result if isinstance(result, dict) else {200: result}
    return extend_schema(
        operation_id=operation_id,
        request=form,
        parameters=[IDEMPOTENCY_KEY],
        responses=results | ACTS | problems,
    )


def values(form: SerializerClass, given: Any) -> dict[str, Any]:
    """Return the values of a request; raise InvalidValue for the first invalid one.

    An unknown name is refused too: a misspelt filter would return everything.
    """
    if not isinstance(given, Mapping):
        raise InvalidValue("body", given, "a JSON object")
    filled = form(data=given)
    for name in given:
        if name not in filled.fields:
            allowed = ", ".join(filled.fields)
            raise InvalidValue(name, given[name], f"one of {allowed}" if allowed else "none")
        if isinstance(given, QueryDict) and len(given.getlist(name)) > 1:
            raise InvalidValue(name, ", ".join(given.getlist(name)), "one value, given once")
        if isinstance(given, QueryDict) and not given[name]:
            # `?application=$APP` without a value would return everything.
            raise InvalidValue(name, "", "a value, or no such parameter")
    if not isinstance(given, QueryDict):
        check_types(filled, given)
    try:
        filled.is_valid(raise_exception=True)
    except ValidationError:
        name, allowed = first_invalid(filled.errors)
        raise InvalidValue(name, value_at(given, name), allowed) from None
    values_of_form = dict(filled.validated_data)
    since, until = values_of_form.get("since"), values_of_form.get("until")
    if since is not None and until is not None and since > until:
        raise InvalidValue("since", given["since"], f"a time before until, {given['until']}")
    return values_of_form


@contextmanager
def renamed(names: Mapping[str, str]) -> Iterator[None]:
    """Give the invalid values of the domain the names that requests of REST have."""
    try:
        yield
    except InvalidValue as error:
        if error.name not in names:
            raise
        raise InvalidValue(names[error.name], error.value, error.allowed) from None


def owners_of(serializer: serializers.BaseSerializer[Any]) -> queries.Owners:
    """Return the owner rules, which are read once for each answer."""
    context = cast(dict[str, queries.Owners], serializer.context)
    if "owners" not in context:
        context["owners"] = queries.owners()
    return context["owners"]


def pop_as_of(parameters: dict[str, Any]) -> queries.AsOf | None:
    """Remove `as_of` from the parameters and return it; None means now."""
    text = parameters.pop("as_of", None)
    return None if text is None else queries.as_of(text)


def read(
    request: Request,
    now: Callable[..., Found],
    past: Callable[..., Found],
    *key: object,
    query: SerializerClass = AsOfQuerySerializer,
) -> Found:
    """Return the result of the query `now`, or of `past` if the URL has `as_of`."""
    wanted = values(query, request.query_params)
    when = pop_as_of(wanted)
    return past(*key, when, **wanted) if when else now(*key, **wanted)


def pop_filter(form: type[FilterSerializer], given: dict[str, Any]) -> Any:
    """Remove the fields of a filter from the values of a request, and return the filter."""
    names = [name for name in form.struct.__struct_fields__ if name in given]
    return form.struct(**{name: given.pop(name) for name in names})


def act_id(request: Request, given: dict[str, Any]) -> UUID:
    """Return the id of an act, or one derived from its key, or a new one.

    Raises IdReused if it came with another request before.
    """
    now, key = timezone.now(), request.headers.get("Idempotency-Key")
    if "id" in given:
        id: UUID = given["id"]
        name, value = "id", str(id)
    elif key:
        id = uuid5(_KEYS, f"{request.user.pk}\0{request.method} {request.path}\0{key}")
        name, value = "Idempotency-Key", key
    else:
        return uuid7(now)
    if not given.get("dry_run"):
        sent = cast(dict[str, Any], request.data)
        body = {name: part for name, part in sent.items() if name != "id"}
        asked = msgspec.json.encode((request.method, request.path, body), order="sorted")
        digest = sha256(asked).digest()
        if actions.check_request(id, digest, name=name, value=value, now=now):
            request._request.META[_FIRST] = id
    return id


@cache
def page_of(row: SerializerClass) -> SerializerClass:
    """Return the serializer of a page of rows."""
    name = f"{row.__name__.removesuffix('Serializer')}Page"
    fields = {
        "results": row(many=True, source="rows"),
        "next": serializers.CharField(allow_null=True),
    }
    return type(name, (serializers.Serializer,), fields)


class ListView(RestView):
    """A list by page: `find` returns a page, and its docstring describes the endpoint.

    If the query has a struct, `find` receives it as its first argument. The other parameters that
    a request has, and the parts of its path, are arguments by name.
    """

    #: The parameters.
    query: ClassVar[type[FilterSerializer]] = PageQuerySerializer
    #: A row of the answer; or the answer, if it has more than rows.
    row: ClassVar[SerializerClass]
    page: ClassVar[SerializerClass | None] = None
    operation_id: ClassVar[str | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Describe the endpoint."""
        super().__init_subclass__(**kwargs)
        problems = PAST if "as_of" in cls.query().fields else PROBLEMS
        described = extend_schema(
            operation_id=cls.operation_id,
            description=getdoc(cls.find),
            parameters=[cls.query] if cls.query().fields else [],
            responses={200: cls.page or page_of(cls.row)} | problems,
        )
        extend_schema_view(get=described)(cls)

    def find(self, *args: Any, **wanted: Any) -> queries.Page[Any]:
        """Return a page of rows."""
        raise NotImplementedError  # Each list has its own arguments; DRF's views are no ABC.

    def context(self, rows: Sequence[Any], as_of: queries.AsOf | None) -> dict[str, Any]:
        """Return the context of the serializer of some rows."""
        return {}

    def get(self, request: Request, **key: Any) -> Response:
        """Return a page of the list."""
        wanted = values(self.query, request.query_params)
        application = wanted.get("application")
        as_of = pop_as_of(wanted)
        if as_of is not None:
            wanted["as_of"] = as_of
        filters = () if self.query.struct is None else (pop_filter(self.query, wanted),)
        found = self.find(*filters, **key, **wanted)
        if application is not None and not found.rows:
            # For a misspelt name an empty list would look like success.
            queries.check_known(application)
        page = self.page or page_of(self.row)
        return Response(page(found, context=self.context(found.rows, as_of)).data)

"""Permissions: roles from Django's groups, and the decorators of pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db import DataError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render, resolve_url
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache

from arrester.controlplane import queries
from arrester.controlplane.domain.errors import ArresterError
from arrester.controlplane.roles import Role
from arrester.dashboard.http_errors import NOT_A_VALUE, headers, status_code, unreachable
from arrester.dashboard.session import extend

#: Where a request keeps the lengths of the logs.
POSITIONS = "arrester.positions"
Args = ParamSpec("Args")
AnyResponse = TypeVar("AnyResponse", bound=HttpResponseBase)
AnyUser = AbstractBaseUser | AnonymousUser


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A logged-in user with a role."""

    name: str
    role: Role

    @property
    def may_act(self) -> bool:
        """Whether the user may use action buttons."""
        return self.role is not Role.VIEWER

    @property
    def is_admin(self) -> bool:
        """Whether the user may manage accounts."""
        return self.role is Role.ADMIN


def person(user: AnyUser) -> Person | None:
    """Return the user with the role; None for an account without one, which has no access."""
    if not isinstance(user, User) or not user.is_active:
        return None
    if user.is_superuser:
        return Person(name=user.get_username(), role=Role.ADMIN)
    groups = set(user.groups.values_list("name", flat=True))
    for role in reversed(Role):
        if role.value in groups:
            return Person(name=user.get_username(), role=role)
    return None


View = Callable[Concatenate[HttpRequest, Person, Args], HttpResponse]
PlainView = Callable[Concatenate[HttpRequest, Args], HttpResponseBase]


def for_people(view: View[Args]) -> Callable[Concatenate[HttpRequest, Args], HttpResponse]:
    """Serve the view to users with a role, and pass the user to it."""

    @wraps(view)
    @never_cache
    @_with_message_pages
    def guarded(request: HttpRequest, /, *args: Args.args, **kwargs: Args.kwargs) -> HttpResponse:
        if not request.user.is_authenticated:
            return _to_login(request)
        who = person(request.user)
        if who is None:
            raise PermissionDenied("this account has no role: viewer, operator or admin")
        extend(request)
        note_positions(request)
        return view(request, who, *args, **kwargs)

    return guarded


def for_everyone(view: PlainView[Args]) -> PlainView[Args]:
    """Serve Django's own page to everyone."""

    @wraps(view)
    @_with_message_pages
    def guarded(
        request: HttpRequest, /, *args: Args.args, **kwargs: Args.kwargs
    ) -> HttpResponseBase:
        response = view(request, *args, **kwargs)
        return response.render() if isinstance(response, TemplateResponse) else response

    return guarded


def _with_message_pages(
    view: Callable[Concatenate[HttpRequest, Args], AnyResponse],
) -> Callable[Concatenate[HttpRequest, Args], AnyResponse | HttpResponse]:
    """Return a page with the message of an error, or of an unreachable PostgreSQL."""

    def guarded(
        request: HttpRequest, /, *args: Args.args, **kwargs: Args.kwargs
    ) -> AnyResponse | HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except ArresterError as error:
            response = message_page(request, str(error), status=status_code(error))
            for name, value in headers(error).items():
                response[name] = value
            return response
        except DataError:
            return message_page(request, NOT_A_VALUE, status=400)
        except OperationalError:
            return message_page(request, unreachable(request.method), status=503)

    return guarded


def note_positions(request: HttpRequest) -> None:
    """Record the length of each log before anything else is read.

    A page shows at least the events up to there, and claims no more.
    """
    request.META[POSITIONS] = queries.positions()


NOT_AN_OPERATOR = "requires the role operator"
NOT_AN_ADMIN = "requires the role admin"


def for_operators(view: View[Args]) -> Callable[Concatenate[HttpRequest, Args], HttpResponse]:
    """Serve the view to operators and admins only; pages show disabled buttons to others."""
    return _for_role(view, lambda who: who.may_act, NOT_AN_OPERATOR)


def for_admins(view: View[Args]) -> Callable[Concatenate[HttpRequest, Args], HttpResponse]:
    """Serve the view to admins only."""
    return _for_role(view, lambda who: who.is_admin, NOT_AN_ADMIN)


def _for_role(
    view: View[Args], allowed: Callable[[Person], bool], refusal: str
) -> Callable[Concatenate[HttpRequest, Args], HttpResponse]:
    @wraps(view)
    def guarded(
        request: HttpRequest, who: Person, /, *args: Args.args, **kwargs: Args.kwargs
    ) -> HttpResponse:
        if not allowed(who):
            raise PermissionDenied(refusal)
        return view(request, who, *args, **kwargs)

    return for_people(guarded)


def check_token(who: Person, id: int) -> None:
    """Raise PermissionDenied for a REST token that the user may not revoke, or that is unknown."""
    if not who.is_admin and all(each.id != id for each in queries.tokens(who.name)):
        raise PermissionDenied(NOT_AN_ADMIN)


def message_page(request: HttpRequest, text: str, *, status: int) -> HttpResponse:
    """Return a page with only a message; the script of an open page shows the message on it."""
    context = {"text": text, "status": status}
    response = render(request, "dashboard/message_page.html", context, status=status)
    response["HX-Reswap"] = "none"
    return response


def _to_login(request: HttpRequest) -> HttpResponse:
    if "HX-Request" not in request.headers:
        return redirect_to_login(request.get_full_path())
    # A refresh after the session has ended: the whole page goes to the login.
    return HttpResponse(status=401, headers={"HX-Redirect": resolve_url("login")})

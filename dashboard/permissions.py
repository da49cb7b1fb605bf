"""Permissions: roles from Django's groups, and the decorators of pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec

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
from arrester.dashboard.http_errors import AWAY, NOT_A_VALUE, status_code

#: Where a request keeps the lengths of the logs.
POSITIONS = "arrester.positions"
Args = ParamSpec("Args")
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
    def decides(self) -> bool:
        """Whether the user may manage accounts."""
        return self.role is Role.ADMIN


def person(user: AnyUser) -> Person | None:
    """Return the user with the role; None without one: nobody reads payloads by accident."""
    if not isinstance(user, User) or not user.is_active:
        return None
    if user.is_superuser:
        return Person(name=user.get_username(), role=Role.ADMIN)
    groups = set(user.groups.values_list("name", flat=True))
    for role in reversed(Role):
        if role.value in groups:
            return Person(name=user.get_username(), role=role)
    return None


def _known(user: AnyUser) -> Person:
    who = person(user)
    if who is None:
        raise PermissionDenied("this account has no role: viewer, operator or admin")
    return who


View = Callable[Concatenate[HttpRequest, Person, Args], HttpResponse]


def for_people(view: View[Args]) -> Callable[Concatenate[HttpRequest, Args], HttpResponse]:
    """Serve the view to users with a role, and pass the user to it."""

    @wraps(view)
    @never_cache
    def guarded(request: HttpRequest, /, *args: Args.args, **kwargs: Args.kwargs) -> HttpResponse:
        try:
            if not request.user.is_authenticated:
                return _to_login(request)
            who = _known(request.user)
            note_positions(request)
            return view(request, who, *args, **kwargs)
        except ArresterError as error:
            return said(request, str(error), status=status_code(error))
        except DataError:
            return said(request, NOT_A_VALUE, status=400)
        except OperationalError:
            return said(request, AWAY, status=503)

    return guarded


def note_positions(request: HttpRequest) -> None:
    """Record the length of each log before anything else is read.

    A page shows at least the events up to there, and claims no more.
    """
    request.META[POSITIONS] = queries.positions()


def for_anybody(
    view: Callable[Concatenate[HttpRequest, Args], HttpResponseBase],
) -> Callable[Concatenate[HttpRequest, Args], HttpResponseBase]:
    """Serve Django's own page to everyone; report an unreachable PostgreSQL."""

    @wraps(view)
    def guarded(
        request: HttpRequest, /, *args: Args.args, **kwargs: Args.kwargs
    ) -> HttpResponseBase:
        try:
            answer = view(request, *args, **kwargs)
            return answer.render() if isinstance(answer, TemplateResponse) else answer
        except DataError:
            return said(request, NOT_A_VALUE, status=400)
        except OperationalError:
            return said(request, AWAY, status=503)

    return guarded


def for_operators(view: View[Args]) -> Callable[Concatenate[HttpRequest, Args], HttpResponse]:
    """Serve the view to operators and admins only; pages show disabled buttons to others."""

    @wraps(view)
    def guarded(
        request: HttpRequest, who: Person, /, *args: Args.args, **kwargs: Args.kwargs
    ) -> HttpResponse:
        if not who.may_act:
            raise PermissionDenied(NOT_AN_OPERATOR)
        return view(request, who, *args, **kwargs)

    return for_people(guarded)


NOT_AN_OPERATOR = "requires the role operator"
NOT_AN_ADMIN = "requires the role admin"


def for_admins(view: View[Args]) -> Callable[Concatenate[HttpRequest, Args], HttpResponse]:
    """Serve the view to admins only."""

    @wraps(view)
    def guarded(
        request: HttpRequest, who: Person, /, *args: Args.args, **kwargs: Args.kwargs
    ) -> HttpResponse:
        if not who.decides:
            raise PermissionDenied(NOT_AN_ADMIN)
        return view(request, who, *args, **kwargs)

    return for_people(guarded)


def said(request: HttpRequest, text: str, *, status: int) -> HttpResponse:
    """Return a page with only a message; for a refresh, a banner."""
    if "HX-Request" in request.headers:
        answer = render(request, "dashboard/refusal_banner.html", {"text": text}, status=status)
        answer["HX-Reswap"] = "none"
        return answer
    context = {"text": text, "status": status, "as_of": request.GET.get("as_of")}
    return render(request, "dashboard/message_page.html", context, status=status)


def _to_login(request: HttpRequest) -> HttpResponse:
    if "HX-Request" not in request.headers:
        return redirect_to_login(request.get_full_path())
    # A refresh after the session has ended: the whole page goes to the login.
    return HttpResponse(status=401, headers={"HX-Redirect": resolve_url("login")})

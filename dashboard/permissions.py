"""Permissions: roles of accounts and tokens, and the decorators of pages."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group, User
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db import DataError, OperationalError
from django.db.models import Value
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render, resolve_url
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache

from arrester.controlplane import access, queries
from arrester.controlplane.access import Person as Person
from arrester.controlplane.access.roles import Role
from arrester.controlplane.models import ApplicationRole, RestToken
from arrester.dashboard.http_errors import NOT_A_VALUE, headers, status_code, unanswered
from arrester.dashboard.session import extend
from arrester.domain.errors import ArresterError

#: Where a request keeps the newest position of each log.
LOG_POSITIONS = "arrester.log_positions"
Args = ParamSpec("Args")
AnyResponse = TypeVar("AnyResponse", bound=HttpResponseBase)
AnyUser = AbstractBaseUser | AnonymousUser


def person(user: AnyUser, token: RestToken | None = None) -> Person | None:
    """Return the user, or a token of it, with the roles; None for one that may see nothing."""
    if not isinstance(user, User) or not user.is_active:
        return None
    role, roles = _roles(user)
    name = user.get_username()
    if token is not None and token.applications is not None:
        listed = frozenset(token.applications)
        account = Person(name=name, role=role, roles=roles)
        found = {each: on for each in listed if (on := account.role_on(each)) is not None}
        return (
            Person(name=name, role=None, roles=found, token_applications=listed) if found else None
        )
    return Person(name=name, role=role, roles=roles) if role or roles else None


def _roles(user: User) -> tuple[Role | None, dict[str, Role]]:
    """Return the role on all applications, and those on single ones, by one statement."""
    if user.is_superuser:
        return Role.ADMIN, {}
    groups = Group.objects.filter(user=user).values_list(Value(""), "name")
    own = ApplicationRole.objects.filter(user=user).values_list("application", "role")
    found = [(name, Role(role)) for name, role in groups.union(own) if role in list(Role)]
    of_all = [role for name, role in found if not name]
    greatest = max(of_all, key=list(Role).index, default=None)
    return greatest, {name: role for name, role in found if name}


Page = Callable[Concatenate[HttpRequest, Person, Args], HttpResponse]
PublicPage = Callable[Concatenate[HttpRequest, Args], HttpResponseBase]


def for_people(page: Page[Args]) -> Callable[Concatenate[HttpRequest, Args], HttpResponse]:
    """Serve the page to users with a role, and pass the user to it."""

    @wraps(page)
    @never_cache
    @_with_message_pages
    def guarded(request: HttpRequest, /, *args: Args.args, **kwargs: Args.kwargs) -> HttpResponse:
        if not request.user.is_authenticated:
            return _to_login(request)
        who = person(request.user)
        if who is None:
            raise PermissionDenied("this account has no role: viewer, operator or admin")
        access.enter(who)
        extend(request)
        note_log_positions(request)
        return page(request, who, *args, **kwargs)

    return guarded


def for_everyone(page: PublicPage[Args]) -> PublicPage[Args]:
    """Serve Django's own page to everyone."""

    @wraps(page)
    @_with_message_pages
    def guarded(
        request: HttpRequest, /, *args: Args.args, **kwargs: Args.kwargs
    ) -> HttpResponseBase:
        response = page(request, *args, **kwargs)
        return response.render() if isinstance(response, TemplateResponse) else response

    return guarded


def _with_message_pages(
    page: Callable[Concatenate[HttpRequest, Args], AnyResponse],
) -> Callable[Concatenate[HttpRequest, Args], AnyResponse | HttpResponse]:
    """Return a page with the message of an error, or of an unreachable PostgreSQL."""

    def guarded(
        request: HttpRequest, /, *args: Args.args, **kwargs: Args.kwargs
    ) -> AnyResponse | HttpResponse:
        try:
            return page(request, *args, **kwargs)
        except ArresterError as error:
            response = message_page(request, str(error), status=status_code(error))
            for name, value in headers(error).items():
                response[name] = value
            return response
        except DataError:
            return message_page(request, NOT_A_VALUE, status=400)
        except OperationalError as error:
            return message_page(request, unanswered(error, request.method), status=503)

    return guarded


def note_log_positions(request: HttpRequest) -> None:
    """Record the newest position of each log before anything else is read.

    A page shows at least the events up to there, and claims no more.
    """
    request.META[LOG_POSITIONS] = queries.log_positions()


#: How a reason begins that names a missing role.
REQUIRES = "requires the role"
NOT_AN_OPERATOR = f"{REQUIRES} operator"
NOT_AN_ADMIN = f"{REQUIRES} admin"
NOT_ON_ALL = "requires a role on all applications"
#: The arguments of URLs that name an application.
_APPLICATION = ("application", "name")


def for_operators(page: Page[Args]) -> Callable[Concatenate[HttpRequest, Args], HttpResponse]:
    """Serve the view to those who may act on the application of the URL; without one, to those who
    may act on any: the action checks its application. Pages show disabled buttons to others."""
    return _for_role(page, lambda who: who.may_act, NOT_AN_OPERATOR)


def for_admins(page: Page[Args]) -> Callable[Concatenate[HttpRequest, Args], HttpResponse]:
    """Serve the view to admins of all applications only."""
    return _for_role(page, lambda who: who.is_admin, NOT_AN_ADMIN)


def for_application_admins(
    page: Page[Args],
) -> Callable[Concatenate[HttpRequest, Args], HttpResponse]:
    """Serve the view to admins of any application; the action checks its application."""
    return _for_role(page, lambda who: who.is_any_admin, NOT_AN_ADMIN)


def for_all_applications(
    page: Page[Args],
) -> Callable[Concatenate[HttpRequest, Args], HttpResponse]:
    """Serve the view, which shows more than applications, to those with a role on all of them."""
    return _for_role(page, lambda who: not who.confined, NOT_ON_ALL)


def _for_role(
    page: Page[Args], allowed: Callable[[Person], bool], refusal: str
) -> Callable[Concatenate[HttpRequest, Args], HttpResponse]:
    @wraps(page)
    def guarded(
        request: HttpRequest, who: Person, /, *args: Args.args, **kwargs: Args.kwargs
    ) -> HttpResponse:
        if not allowed(who):
            raise PermissionDenied(refusal)
        for name in _APPLICATION:
            if name in kwargs:
                access.require(str(kwargs[name]))
        return page(request, who, *args, **kwargs)

    return for_people(guarded)


def tokens_of(who: Person) -> tuple[RestToken, ...]:
    """Return the REST tokens that a person may list and revoke: admins those of all accounts, a
    token those with no more than its own applications."""
    found = queries.tokens(None if who.is_admin else who.name)
    own = who.token_applications
    if own is None:
        return found
    return tuple(
        each
        for each in found
        if each.applications is not None and own.issuperset(each.applications)
    )


def check_token(who: Person, id: int) -> None:
    """Raise PermissionDenied for a REST token that the user may not revoke, or that is unknown."""
    if not who.is_admin and all(each.id != id for each in tokens_of(who)):
        raise PermissionDenied(NOT_AN_ADMIN)


def visible_applications(who: Person, token: RestToken) -> list[str] | None:
    """Return the applications of a token that a person may see; None: all of the account."""
    if token.applications is None:
        return None
    return [each for each in token.applications if who.role_on(each) is not None]


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

"""Log-in by an OpenID Connect provider: to its page, and back with a code."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any

import requests
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.django_client import OAuth
from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import resolve_url
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_GET
from joserfc.errors import JoseError

from arrester.controlplane import actions
from arrester.controlplane.access.roles import Role
from arrester.controlplane.env import SignOn
from arrester.dashboard.permissions import message_page
from arrester.dashboard.session import client_address
from arrester.domain.errors import InvalidValue, NotFound

_NEXT = "sign_on_next"
_TIMEOUT_SECONDS = 10


@require_GET
def begin(request: HttpRequest) -> HttpResponse:
    """Redirect to the page of the provider."""
    sign_on = _settings()
    following = request.GET.get("next", "")
    allowed = url_has_allowed_host_and_scheme(following, {request.get_host()}, request.is_secure())
    request.session[_NEXT] = following if allowed else ""
    back = f"{settings.ENVIRONMENT.url}{reverse('sign-on-callback')}"
    try:
        found: HttpResponse = _client(sign_on).authorize_redirect(request, back)
    except (requests.RequestException, ValueError) as error:
        return _unreachable(request, sign_on, error)
    return found


@require_GET
def callback(request: HttpRequest) -> HttpResponse:
    """Log in with what the provider signs, and with the role of its claim."""
    sign_on = _settings()
    expected = {
        "iss": {"essential": True, "value": sign_on.issuer},
        "aud": {"essential": True, "value": sign_on.client_id},
    }
    try:
        token = _client(sign_on).authorize_access_token(request, claims_options=expected)
        claims = token["userinfo"]
    except (AuthlibBaseError, JoseError, KeyError) as error:
        text = f"The log-in by single sign-on failed: {error}. Begin it again on the log-in page."
        return message_page(request, text, status=403)
    except (requests.RequestException, ValueError) as error:
        return _unreachable(request, sign_on, error)
    name = str(claims.get("preferred_username") or claims.get("email") or "")
    try:
        user = _account(sign_on, claims, name)
    except (InvalidValue, PermissionDenied):
        actions.record_refused_login(name, client_address(request))
        raise
    following = request.session.pop(_NEXT, "")
    login(request, user, "django.contrib.auth.backends.ModelBackend")
    actions.record_login(user.get_username(), client_address(request))
    return HttpResponseRedirect(following or resolve_url(settings.LOGIN_REDIRECT_URL))


def _account(sign_on: SignOn, claims: Mapping[str, Any], name: str) -> User:
    """Return the active account of verified claims; raise InvalidValue or PermissionDenied."""
    role, on_applications = role_of(claims, sign_on), application_roles_of(claims, sign_on)
    if role is None and not any(on_applications.values()):
        values = ", ".join(value for *_, value in (*sign_on.roles, *sign_on.application_roles))
        raise PermissionDenied(
            f"{name or 'this account'} has no role: the claim {sign_on.claim} needs one of {values}"
        )
    user = actions.sign_on(sign_on.issuer, str(claims["sub"]), name, role, on_applications)
    if not user.is_active:
        raise PermissionDenied("this account is deactivated")
    return user


def role_of(claims: Mapping[str, Any], sign_on: SignOn) -> Role | None:
    """Return the highest role that the values of the claim give; None: no access."""
    values = _values(claims, sign_on)
    return _greatest(role for role, value in sign_on.roles if value in values)


def application_roles_of(claims: Mapping[str, Any], sign_on: SignOn) -> dict[str, Role | None]:
    """Return the role that the claim gives on each application that the settings name."""
    values = _values(claims, sign_on)
    return {
        name: _greatest(
            role
            for role, application, value in sign_on.application_roles
            if application == name and value in values
        )
        for _, name, _ in sign_on.application_roles
    }


def _values(claims: Mapping[str, Any], sign_on: SignOn) -> Collection[Any]:
    given = claims.get(sign_on.claim)
    return given if isinstance(given, Collection) and not isinstance(given, str) else [given]


def _greatest(roles: Iterable[Role]) -> Role | None:
    return max(roles, key=list(Role).index, default=None)


@cache
def _client(sign_on: SignOn) -> Any:
    """Return the client; it keeps the metadata of the provider."""
    return OAuth().register(
        "sign-on",
        client_id=sign_on.client_id,
        client_secret=sign_on.client_secret,
        server_metadata_url=f"{sign_on.issuer.rstrip('/')}/.well-known/openid-configuration",
        client_kwargs={
            "scope": "openid email profile",
            "code_challenge_method": "S256",
            "default_timeout": _TIMEOUT_SECONDS,
        },
    )


def _settings() -> SignOn:
    sign_on: SignOn | None = settings.ENVIRONMENT.sign_on
    if sign_on is None:
        raise NotFound("single sign-on is not configured: set ARRESTER_OIDC_ISSUER")
    return sign_on


def _unreachable(request: HttpRequest, sign_on: SignOn, error: Exception) -> HttpResponse:
    text = f"The provider {sign_on.issuer} of single sign-on does not answer as expected: {error}"
    return message_page(request, text, status=503)

"""The authentication of REST by a token, its scope, and the rate of requests."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from rest_framework.authentication import TokenAuthentication
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.throttling import UserRateThrottle

from arrester.controlplane import actions
from arrester.controlplane.access.roles import TokenScope
from arrester.controlplane.models import RestToken


class RestTokenAuthentication(TokenAuthentication):
    """Authenticate the header `Authorization: Bearer …`, or `Token …`."""

    keyword = "Bearer"

    def authenticate(self, request: Request) -> tuple[User, Any] | None:
        """Return the account and the token, None without a header; raise AuthenticationFailed."""
        scheme = request.headers.get("Authorization", "").split(" ")[0]
        if scheme.lower() == "token":
            self.keyword = scheme
        return super().authenticate(request)

    def authenticate_header(self, request: Request) -> str:
        """Return the header WWW-Authenticate of a 401."""
        return "Bearer"

    def authenticate_credentials(self, key: str) -> tuple[User, Any]:
        """Return the account and the token; raise AuthenticationFailed."""
        found = actions.use_token(key)
        if found is None:
            raise AuthenticationFailed("the token is unknown, has expired or was revoked")
        return found


class Throttle(UserRateThrottle):
    """Limit the requests of an account; each web process counts for itself."""

    rate = "1200/min"


def check_scope(request: Request, *, reads: bool) -> None:
    """Raise PermissionDenied if a token with the scope read would change something.

    Args:
        reads: whether the endpoint only reads, also by POST.
    """
    token = request.auth
    if not isinstance(token, RestToken) or token.scope == TokenScope.OPERATE:
        return
    if not reads and request.method not in SAFE_METHODS:
        raise PermissionDenied(
            f"token {token.name!r} has the scope read; this request requires a token with the"
            " scope operate"
        )

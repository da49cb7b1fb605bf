"""Allowed host names; health probes may use any, since they know the server by its address."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest, HttpResponsePermanentRedirect
from django.middleware.common import CommonMiddleware

#: Their answers contain nothing of the request.
PROBES: Final = frozenset({"/healthz", "/readyz"})


class AllowedHosts(CommonMiddleware):
    """Django's middleware that refuses other host names, except for probes."""

    def process_request(self, request: HttpRequest) -> HttpResponsePermanentRedirect | None:
        """Refuse a request with a host name that is not allowed."""
        return None if request.path_info in PROBES else super().process_request(request)

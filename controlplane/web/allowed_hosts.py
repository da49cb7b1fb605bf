"""The host names that we answer to: probes may use any, since they know us by our address."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest, HttpResponsePermanentRedirect
from django.middleware.common import CommonMiddleware

#: Their answers have nothing of the request in them.
PROBES: Final = frozenset({"/healthz", "/readyz"})


class AllowedHosts(CommonMiddleware):
    """Django's own, which refuses names that are not allowed, but for probes."""

    def process_request(self, request: HttpRequest) -> HttpResponsePermanentRedirect | None:
        """Refuse a request under a name that is not ours."""
        return None if request.path_info in PROBES else super().process_request(request)

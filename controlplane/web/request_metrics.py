"""Count requests by route and class of status, and measure how long their answers take."""

from __future__ import annotations

from typing import Final

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from arrester.controlplane.redis import metric_sums
from arrester.controlplane.web.middleware import ResponseMiddleware

#: The route of static files, and of requests that are refused before a route is known.
STATIC: Final = "/static/"
NO_ROUTE: Final = ""


class RequestMetrics(ResponseMiddleware):
    """Measure each request until its response begins."""

    def complete(self, request: HttpRequest, response: HttpResponseBase, *, seconds: float) -> None:
        """Count the request."""
        route = _route(request)
        metric_sums.count(metric_sums.HTTP_REQUESTS, route, f"{response.status_code // 100}xx")
        metric_sums.observe(metric_sums.HTTP, route, seconds=seconds)


def _route(request: HttpRequest) -> str:
    """Return the template of the path: the number of routes is bounded, that of paths is not."""
    if request.resolver_match is not None:
        return f"/{request.resolver_match.route}"
    return STATIC if request.path.startswith(settings.STATIC_URL) else NO_ROUTE

"""Count requests by route and class of status, and measure how long their answers take."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import Final

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from arrester.controlplane.redis import metric_sums
from arrester.controlplane.web.middleware import GetResponse, ResponseOrAwaitable

#: The route of static files, and of requests that are refused before a route is known.
STATIC: Final = "/static/"
NO_ROUTE: Final = ""


class RequestMetrics:
    """Measure each request until its response begins."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> ResponseOrAwaitable:
        began = time.monotonic()
        response = self.get_response(request)
        if isinstance(response, HttpResponseBase):
            _record(request, response, began)
            return response
        return self._respond(request, response, began)

    async def _respond(
        self, request: HttpRequest, response: Awaitable[HttpResponseBase], began: float
    ) -> HttpResponseBase:
        found = await response
        _record(request, found, began)
        return found


def _record(request: HttpRequest, response: HttpResponseBase, began: float) -> None:
    route = _route(request)
    metric_sums.count(metric_sums.HTTP_REQUESTS, route, f"{response.status_code // 100}xx")
    metric_sums.observe(metric_sums.HTTP, route, seconds=time.monotonic() - began)


def _route(request: HttpRequest) -> str:
    """Return the template of the path: the number of routes is bounded, that of paths is not."""
    if request.resolver_match is not None:
        return f"/{request.resolver_match.route}"
    return STATIC if request.path.startswith(settings.STATIC_URL) else NO_ROUTE

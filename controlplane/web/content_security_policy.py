"""The Content-Security-Policy header: pages load only from this server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponseBase

POLICY = (
    "default-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none';"
    " img-src 'self' data:; object-src 'none'"
)
# Swagger UI sets style attributes from its own script.
DOCS_POLICY = f"{POLICY}; style-src 'self' 'unsafe-inline'"
DOCS_PREFIX = "/api/docs"

Answer = HttpResponseBase | Awaitable[HttpResponseBase]


class ContentSecurityPolicy:
    """Add the header to each response, under WSGI and ASGI, without a change of threads."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Answer]) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Answer:
        response = self.get_response(request)
        if isinstance(response, HttpResponseBase):
            return _with_header(request, response)
        return self._later(request, response)

    async def _later(
        self, request: HttpRequest, response: Awaitable[HttpResponseBase]
    ) -> HttpResponseBase:
        return _with_header(request, await response)


def _with_header(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    policy = DOCS_POLICY if request.path.startswith(DOCS_PREFIX) else POLICY
    response.headers.setdefault("Content-Security-Policy", policy)
    return response

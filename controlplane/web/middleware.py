"""The middleware of the web process: compression, host names, headers of responses."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Final

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponseBase, HttpResponsePermanentRedirect
from django.middleware.common import CommonMiddleware
from django.middleware.gzip import GZipMiddleware

#: Health probes know the server by its address; their answers contain nothing of the request.
PROBES: Final = frozenset({"/healthz", "/readyz"})
#: Pages load only from this server.
POLICY = (
    "default-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none';"
    " img-src 'self' data:; object-src 'none'"
)
# Swagger UI sets style attributes from its own script.
DOCS_POLICY = f"{POLICY}; style-src 'self' 'unsafe-inline'"
DOCS_PREFIX = "/api/v1/docs"
#: Answers of these are never stored; pages have it from `dashboard.permissions`.
UNSTORED_PREFIXES = ("/api/", "/metrics")

#: Media types that are sent as they are: events at once, and Parquet, which is compressed.
UNCOMPRESSED = ("text/event-stream", "application/vnd.apache.parquet")

ResponseOrAwaitable = HttpResponseBase | Awaitable[HttpResponseBase]
GetResponse = Callable[[HttpRequest], ResponseOrAwaitable]


class ResponseMiddleware(ABC):
    """Complete each response, under WSGI and ASGI, without a change of threads."""

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
            self.complete(request, response, seconds=time.monotonic() - began)
            return response
        return self._await(request, response, began)

    async def _await(
        self, request: HttpRequest, response: Awaitable[HttpResponseBase], began: float
    ) -> HttpResponseBase:
        found = await response
        self.complete(request, found, seconds=time.monotonic() - began)
        return found

    @abstractmethod
    def complete(self, request: HttpRequest, response: HttpResponseBase, *, seconds: float) -> None:
        """Change or count a response that began `seconds` after its request."""


class ResponseHeaders(ResponseMiddleware):
    """Add headers to each response."""

    def complete(self, request: HttpRequest, response: HttpResponseBase, *, seconds: float) -> None:
        """Add the content policy, and that answers of the API are not stored."""
        policy = DOCS_POLICY if request.path.startswith(DOCS_PREFIX) else POLICY
        response.headers.setdefault("Content-Security-Policy", policy)
        if request.path.startswith(UNSTORED_PREFIXES):
            response.headers.setdefault("Cache-Control", "no-store")


class Compression(GZipMiddleware):
    """Compress responses, except streams of events, Parquet and parts of files.

    A page repeats no secret beside a text of the request (BREACH): Django masks the CSRF token
    anew in each response, and its GZipMiddleware adds random bytes.
    """

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Return the compressed response if the browser accepts it."""
        kind = response.headers.get("Content-Type", "")
        if kind.startswith(UNCOMPRESSED) or response.status_code == 206:
            return response
        compressed: HttpResponseBase = super().process_response(request, response)
        return compressed


class AllowedHosts(CommonMiddleware):
    """Django's middleware that refuses other host names, except for probes."""

    def process_request(self, request: HttpRequest) -> HttpResponsePermanentRedirect | None:
        """Refuse a request with a host name that is not allowed."""
        return None if request.path_info in PROBES else super().process_request(request)

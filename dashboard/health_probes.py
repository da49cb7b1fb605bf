"""Health probes without a login: liveness and readiness."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from arrester.controlplane import queries


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer 200 while the process is alive."""
    return HttpResponse("alive\n", content_type="text/plain")


@require_safe
@never_cache
def readyz(request: HttpRequest) -> JsonResponse:
    """Answer 200 if this process can serve requests, else 503; within a second.

    Redis and the fold are reported only: every web process would be not ready at once, and their
    pages show the state without both.
    """
    found = queries.readiness()
    seconds = None if found.lag is None else found.lag.fold_seconds
    waiting = None if found.lag is None else found.lag.waiting_seconds
    body = {
        "ready": not found.failed,
        "failed": found.failed,
        "degraded": found.degraded,
        "fold_lag_seconds": seconds,
        "queue_age_seconds": waiting,
    }
    return JsonResponse(body, status=503 if found.failed else 200)

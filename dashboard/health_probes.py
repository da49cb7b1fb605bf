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
    """Answer 200 if PostgreSQL and Redis are reachable, else 503 with the unreachable ones."""
    health = queries.health()
    reaches = {"postgres": health.postgres, "redis": health.redis}
    away = [name for name, reach in reaches.items() if not reach.up]
    return JsonResponse({"ready": not away, "away": away}, status=503 if away else 200)

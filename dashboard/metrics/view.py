"""Serve `/metrics` in the format that the client prefers."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.utils.cache import patch_vary_headers
from drf_spectacular.utils import extend_schema
from prometheus_client import CollectorRegistry
from rest_framework.request import Request

from arrester.controlplane import queries
from arrester.dashboard.metrics import formats
from arrester.dashboard.metrics.families import MetricsCollector
from arrester.dashboard.rest import base


class MetricsView(base.RestView):
    """The endpoint of Prometheus."""

    def perform_content_negotiation(self, request: Request, force: bool = False) -> tuple[Any, str]:
        """Return the renderer of errors: `Accept` names the formats of metrics only."""
        renderer = self.get_renderers()[0]
        return renderer, renderer.media_type

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        """Return all current metrics of the applications that the account sees.

        The metrics of the server are for roles on all applications.
        """
        format, content_type = formats.preferred(request.headers.get("Accept", ""))
        registry = CollectorRegistry()
        who = base.person_of(request)
        assert who is not None  # by the permission
        registry.register(MetricsCollector(queries.metrics(), server=not who.confined))
        response = HttpResponse(format.encode(registry), content_type=content_type)
        patch_vary_headers(response, ["Accept"])
        return response

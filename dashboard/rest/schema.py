"""The OpenAPI document, generated once per process: it depends on the version only."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class SchemaView(SpectacularAPIView):
    """The OpenAPI document, the same for all who may read it."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        """Return the document in the form that the request accepts."""
        renderer: BaseRenderer = request.accepted_renderer
        return HttpResponse(
            _rendered(renderer.media_type),
            content_type=f"{renderer.media_type}; charset=utf-8",
            headers={"Content-Disposition": f'inline; filename="arrester.{renderer.format}"'},
        )


@cache
def _rendered(media_type: str) -> bytes:
    [renderer] = [each for each in SchemaView.renderer_classes if each.media_type == media_type]
    content = renderer().render(_document(), media_type, {})
    return content.encode() if isinstance(content, str) else content


@cache
def _document() -> Any:
    generator: Any = SpectacularAPIView.generator_class()
    return generator.get_schema(request=None, public=True)

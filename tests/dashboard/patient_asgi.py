"""The ASGI application in which a PostgreSQL or Redis on a busy machine does not count as hung."""

from __future__ import annotations

from arrester.controlplane.web import hang
from tests.patience import PATIENCE_SECONDS

for name in ("ANSWER_SECONDS", "CONNECT_SECONDS", "REDIS_SECONDS"):
    setattr(hang, name, PATIENCE_SECONDS)

from arrester.controlplane.web.asgi import application  # noqa: E402  # it reads the limits above

__all__ = ["application"]

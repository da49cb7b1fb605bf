"""The Celery application with turns so short that a backlog takes many of them."""

from __future__ import annotations

from functools import partial

import django

django.setup()

from arrester.controlplane.celery import app  # noqa: E402
from arrester.controlplane.ingest import drain  # noqa: E402  # Django has to be ready first

__all__ = ["app"]

drain.drain = partial(drain.drain, budget_seconds=0.02)
drain.FIRST_ENTRIES = drain.MAX_ENTRIES = 32

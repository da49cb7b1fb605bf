"""The Celery application with turns so short that a backlog takes many of them."""

from __future__ import annotations

from functools import partial

import django

django.setup()

from controlplane import ingest  # noqa: E402  # Django has to be ready first
from controlplane.celery import app  # noqa: E402

__all__ = ["app"]

ingest.drain = partial(ingest.drain, budget_seconds=0.02)
ingest.FIRST_ENTRIES = ingest.MOST_ENTRIES = 32

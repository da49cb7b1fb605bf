"""The Celery application with turns so short that a backlog takes many of them."""

from __future__ import annotations

from functools import partial

import django

django.setup()

from arrester.controlplane.celery import app  # noqa: E402
from arrester.controlplane.ingest import fold_stream  # noqa: E402  # Django has to be ready first

__all__ = ["app"]

fold_stream.fold_stream = partial(fold_stream.fold_stream, budget_seconds=0.02)
fold_stream.FIRST_ENTRIES = fold_stream.MAX_ENTRIES = 32

"""A process that folds one application, in small transactions, until it is killed."""

from __future__ import annotations

import sys

import django

django.setup()

from arrester.controlplane.ingest import fold_stream  # noqa: E402  # Django has to be ready first

fold_stream.FIRST_ENTRIES = fold_stream.MAX_ENTRIES = 2
print("ready", flush=True)
while True:
    fold_stream.fold_stream(sys.argv[1], budget_seconds=0.5)

"""A process that folds one application, in small transactions, until it is killed."""

from __future__ import annotations

import sys

import django

django.setup()

from arrester.controlplane.ingest import drain  # noqa: E402  # Django has to be ready first

drain.FIRST_ENTRIES = drain.MAX_ENTRIES = 2
print("ready", flush=True)
while True:
    drain.drain(sys.argv[1], budget_seconds=0.5)

"""Import what all Python processes of the server need: those forked afterwards share it."""

from __future__ import annotations

import gc
import os
import signal
from importlib import import_module

import django

from arrester.controlplane.embedded import process

# Signals of a terminal reach `up` only, which stops the forks in order.
os.setsid()
# The forks keep the pipe open by which `multiprocessing` ends it with `up`.
process.end_with_parent(signal.SIGTERM)()
django.setup()
for name in (
    "arrester.controlplane.tasks",
    "arrester.controlplane.management.commands.wake",
    # Two of the processes are workers of Celery.
    "celery.bin.celery",
    "celery.apps.worker",
    "celery.concurrency.prefork",
    "kombu.transport.redis",
):
    import_module(name)
# The garbage collector would write to each object, and so copy its page in each process.
gc.collect()
gc.freeze()

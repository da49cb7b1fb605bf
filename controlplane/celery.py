"""Configure Celery with Redis as the broker and without a result backend."""

from __future__ import annotations

import gc
import os
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from celery import Celery
from celery.signals import (
    celeryd_after_setup,
    task_prerun,
    worker_process_init,
    worker_process_shutdown,
)
from django.conf import settings
from django.db import close_old_connections, connections
from kombu import Exchange, Queue

from arrester.controlplane.celery_workers import FOLDS, HOUSEKEEPING
from arrester.controlplane.redis import redis_urls
from arrester.domain.tracing import tracer

#: Folds of streams have the lowest priority in FOLDS, so that a backlog does not delay sweeps.
#: Celery has one list in Redis for each priority; 0 is the highest.
_LOWEST_PRIORITY = 9
STREAM_FOLDS = f"{FOLDS}\x06\x16{_LOWEST_PRIORITY}"
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "arrester.controlplane.settings")
# Django's checks import all pages, 20 MB in each process; `make lint` runs them.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")


def broker_tls(redis_url: str) -> dict[str, Any] | None:
    """Return Celery's TLS options, None without TLS.

    Celery does not verify the server by default. These options do, as `redis_client` does, unless
    the URL has other ones.
    """
    parts = urlsplit(redis_url)
    if parts.scheme != "rediss":
        return None
    options = {key: value for key, value in parse_qsl(parts.query) if key.startswith("ssl_")}
    check = options.get("ssl_check_hostname", "true").lower() in ("true", "1", "t", "yes", "y")
    return {"ssl_cert_reqs": "required", **options, "ssl_check_hostname": check}


def _queue(name: str) -> Queue:
    return Queue(name, Exchange(name), routing_key=name)


app = Celery("arrester")
app.conf.update(
    broker_url=redis_urls.for_celery(settings.BROKER_URL),
    broker_use_ssl=broker_tls(settings.BROKER_URL),
    broker_connection_retry_on_startup=True,
    task_ignore_result=True,
    # A worker without --queues consumes both.
    task_queues=[_queue(FOLDS), _queue(HOUSEKEEPING)],
    task_default_queue=FOLDS,
    task_routes={
        "arrester.fold_stream": {"priority": _LOWEST_PRIORITY},
        "arrester.housekeeping": {"queue": HOUSEKEEPING},
        # In this queue they do not delay folds.
        "arrester.keep": {"queue": HOUSEKEEPING},
        "arrester.verify_audit": {"queue": HOUSEKEEPING},
        "arrester.check_quotas": {"queue": HOUSEKEEPING},
        "arrester.read_dead_letter": {"queue": HOUSEKEEPING},
        "arrester.index_records": {"queue": HOUSEKEEPING},
        "arrester.deliver_events": {"queue": HOUSEKEEPING},
    },
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    # Tasks per connection. Opening one costs as much as a small fold; closing it releases the
    # memory of its PostgreSQL process.
    CELERY_DB_REUSE_MAX=1000,
    enable_utc=True,
    timezone="UTC",
)


def queue_of(task: str) -> str:
    """Return the queue of a task, by its name."""
    return str(app.conf.task_routes.get(task, {}).get("queue", FOLDS))


@celeryd_after_setup.connect
def share_memory(**_: object) -> None:
    """Keep the garbage collector from writing to objects that forked processes share."""
    gc.collect()
    gc.freeze()


@worker_process_init.connect
def keep_connections(**_: object) -> None:
    """Keep the database connection of a worker process between tasks."""
    connections["default"].settings_dict.update(CONN_MAX_AGE=None, CONN_HEALTH_CHECKS=True)


@worker_process_shutdown.connect
def send_last_spans(**_: object) -> None:
    """Send the spans that wait in a worker process, whose `atexit` functions are not called."""
    tracer.close(tracer.SERVER)


@task_prerun.connect
def check_connections(**_: object) -> None:
    """Check the kept connection before a task uses it."""
    close_old_connections()


app.autodiscover_tasks(["arrester.controlplane"])

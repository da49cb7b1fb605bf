"""The Celery application: Redis carries the messages, PostgreSQL keeps every truth."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from celery import Celery
from celery.schedules import crontab
from celery.signals import task_prerun, worker_process_init
from django.conf import settings
from django.db import close_old_connections, connections
from kombu import Exchange, Queue

#: Apart, so that no fold waits while a base is made and verified, which may take minutes.
FOLDS, HOUSEKEEPING = "arrester", "arrester-housekeeping"
#: Drains wait behind whatever else the workers of FOLDS have to do, so that no backlog keeps sweeps
#: from them. In Redis, Celery has a list for each priority; 0 is taken first.
_LAST = 9
DRAINS = f"{FOLDS}\x06\x16{_LAST}"
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "arrester.controlplane.settings")


def broker_url(redis_url: str) -> str:
    """Return `redis_url` as Celery spells it: a unix socket has another scheme there."""
    parts = urlsplit(redis_url)
    if parts.scheme != "unix":
        return redis_url
    query = dict(parse_qsl(parts.query))
    password = unquote(parts.password or "") or query.get("password", "")
    login = f":{quote(password, safe='')}@" if password else ""
    return f"redis+socket://{login}{parts.path}?virtual_host={query.get('db', '0')}"


def broker_tls(redis_url: str) -> dict[str, Any] | None:
    """Return how Celery checks who answers, which it does not by itself: as `broker.client` does,
    unless the URL says otherwise; None without TLS."""
    parts = urlsplit(redis_url)
    if parts.scheme != "rediss":
        return None
    said = {key: value for key, value in parse_qsl(parts.query) if key.startswith("ssl_")}
    checked = said.get("ssl_check_hostname", "true").lower() in ("true", "1", "t", "yes", "y")
    return {"ssl_cert_reqs": "required", **said, "ssl_check_hostname": checked}


def _queue(name: str) -> Queue:
    return Queue(name, Exchange(name), routing_key=name)


app = Celery("arrester")
app.conf.update(
    broker_url=broker_url(settings.REDIS_URL),
    broker_use_ssl=broker_tls(settings.REDIS_URL),
    broker_connection_retry_on_startup=True,
    task_ignore_result=True,
    # A worker that is not told which takes the messages of both.
    task_queues=[_queue(FOLDS), _queue(HOUSEKEEPING)],
    task_default_queue=FOLDS,
    task_routes={
        "arrester.drain": {"priority": _LAST},
        "arrester.housekeeping": {"queue": HOUSEKEEPING},
        # Where it waits no drain is kept from lingering; and who has time is there.
        "arrester.keep": {"queue": HOUSEKEEPING},
    },
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    # So many tasks share a connection: to open one costs as much as a small fold. What its process
    # in PostgreSQL remembers of our tables is given up then.
    CELERY_DB_REUSE_MAX=1000,
    enable_utc=True,
    timezone="UTC",
    # All that beat does; what cannot wait an hour is asked for by `wake`.
    beat_schedule={
        "housekeeping": {
            "task": "arrester.housekeeping",
            # At a minute of each hour, not an hour after its start: a beat that is started anew
            # more often than that, and does not remember when it last ran, does it all the same.
            "schedule": crontab(minute="13"),
            # Those of hours without a worker do not queue up.
            "options": {"expires": 600},
        }
    },
)


@worker_process_init.connect
def keep_connections(**_: object) -> None:
    """Let a worker's process keep its connection from one task to the next: web processes open one
    for each request."""
    connections["default"].settings_dict.update(CONN_MAX_AGE=None, CONN_HEALTH_CHECKS=True)


@task_prerun.connect
def look_at_connections(**_: object) -> None:
    """Have the connection that was kept tried before a task uses it."""
    close_old_connections()


app.autodiscover_tasks(["arrester.controlplane"])

"""The toy's workers: a first version with Django and Celery.

Unlike the default, connections are kept between tasks.
"""

from __future__ import annotations

import json
import os
from typing import ClassVar

import django
from celery import Celery
from celery.signals import worker_process_init
from django.db import connections, models, transaction

django.setup()
app = Celery("toy", broker=os.environ["TOY_BROKER_URL"])
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    broker_connection_retry_on_startup=True,
    CELERY_DB_REUSE_MAX=10**9,
)


class ToyEvent(models.Model):
    """An event."""

    task = models.TextField()
    payload = models.JSONField()
    objects: ClassVar[models.Manager[ToyEvent]] = models.Manager()

    class Meta:
        app_label = "controlplane"
        db_table = "toy_event"
        managed = False

    def __str__(self) -> str:
        return self.task


class ToyTask(models.Model):
    """The state of a task."""

    key = models.TextField(primary_key=True)
    failed = models.BigIntegerField(default=0)
    last = models.JSONField(null=True)
    objects: ClassVar[models.Manager[ToyTask]] = models.Manager()

    class Meta:
        app_label = "controlplane"
        db_table = "toy_task"
        managed = False

    def __str__(self) -> str:
        return self.key


@worker_process_init.connect
def keep_connections(**_: object) -> None:
    """Let a worker keep its connection; by default Celery closes Django's after each task."""
    connections["default"].settings_dict["CONN_MAX_AGE"] = None


@app.task(name="toy.record")
def record(task: str, event: str) -> None:
    """Append one event and count it, under the lock of its task's row, in a transaction."""
    payload = json.loads(event)
    with transaction.atomic():
        ToyTask.objects.get_or_create(key=task)
        state = ToyTask.objects.select_for_update().get(key=task)
        ToyEvent.objects.create(task=task, payload=payload)
        state.failed += 1
        state.last = payload
        state.save()

"""Have the streams folded as soon as something comes; repair what was lost every five seconds."""

from __future__ import annotations

import logging
import signal
import threading
import time
from datetime import UTC, datetime
from typing import Any

from celery.app.task import Task
from django.core.management.base import BaseCommand
from django.db import DatabaseError, InterfaceError, connection
from kombu.exceptions import OperationalError

from arrester.controlplane import actions, redis_client, tasks
from arrester.controlplane.celery import DRAINS, FOLDS
from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.domain.identity import redis_keys
from arrester.controlplane.domain.identity.names import check_name
from arrester.controlplane.ingest import drain_requests
from arrester.controlplane.outbound import backpressure, heartbeats

log = logging.getLogger(__name__)
#: How often new streams are looked for, and how soon a signal is seen.
LOOK_SECONDS = 1.0
SWEEP_SECONDS = 5
#: A Redis that others fill too is gone through in so large steps, and so many for each look.
KEYS_PER_STEP = 1000
STEPS_PER_LOOK = 20
EXPIRE_SECONDS = 60
#: Above this nobody takes messages; more of them would only fill Redis.
MOST_MESSAGES = 1000


class Command(BaseCommand):
    help = "Wait for events and have them folded; runs until SIGTERM."

    def handle(self, *_args: Any, **_options: Any) -> None:
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        waker = Waker()
        self.stdout.write("awake")
        self.stdout.flush()
        while not ended.is_set():
            try:
                waker.turn()
            except (redis_client.RedisError, OperationalError) as exc:
                log.warning("Redis is away: %s", exc)
                waker.next_sweep = 0.0
                ended.wait(1)
        self.stdout.write("asleep")


class Waker:
    """Knows the streams, and up to where it has asked for each to be folded."""

    def __init__(self) -> None:
        self.redis = redis_client.client()
        self.positions: dict[str, str] = {}
        #: The applications whose streams are to be folded, or may still be at it.
        self.asked: set[str] = set()
        self.next_look = self.next_sweep = 0.0
        #: Up to where all keys of Redis have been gone through; 0: to their end.
        self.scanned = 0

    def turn(self) -> None:
        """Wait for up to a second, and have folded what came; sweep when it is time.

        A key in the place of a stream that is none holds up nobody else.
        """
        try:
            self._turn()
        except redis_client.ResponseError as exc:
            log.warning("Redis refuses; we look again which streams there are: %s", exc)
            self.positions.clear()
            self.next_look = 0.0
            time.sleep(LOOK_SECONDS)

    def _turn(self) -> None:
        now = time.monotonic()
        if now >= self.next_look:
            self.next_look = now + LOOK_SECONDS
            self._discover()
            self._follow_up()
            if not self.redis.exists(redis_keys.WATCH):
                # This Redis is new or was emptied: agents have to hear soon what is LATCHED.
                self.next_sweep = 0.0
        if now >= self.next_sweep:
            self.next_sweep = now + SWEEP_SECONDS
            self._sweep()
        if not self.positions:
            time.sleep(LOOK_SECONDS)
            return
        milliseconds = int(LOOK_SECONDS * 1000)
        for name in redis_client.changed(self.redis, self.positions, milliseconds=milliseconds):
            self.positions[name] = redis_client.last_id(self.redis, name) or "0-0"
            self._wake(redis_keys.application_of(name))

    def _discover(self) -> None:
        """Learn new streams among some keys more; what waits in them wakes us at once."""
        for _ in range(STEPS_PER_LOOK):
            answer: Any = self.redis.scan(
                self.scanned, match=redis_keys.EVENT_STREAMS, count=KEYS_PER_STEP, _type="stream"
            )
            self.scanned, found = answer
            for name in (key.decode(errors="replace") for key in found):
                if name not in self.positions and _is_ours(name):
                    self.positions[name] = "0-0"
            if not self.scanned:
                return

    def _sweep(self) -> None:
        """Ask again for whatever may have been lost: messages, or a whole Redis."""
        _note_what_is_there()
        for task in (tasks.sweep, tasks.watch):
            self._repeat(task)
        for name in list(self.positions):
            try:
                self._look_again(name)
            except redis_client.ResponseError as exc:
                log.warning("%s is left alone: %s", name, exc)
                del self.positions[name]

    def _look_again(self, name: str) -> None:
        self.positions[name] = redis_client.last_id(self.redis, name) or "0-0"
        application = redis_keys.application_of(name)
        # Here and not in a task: it is wanted most when no worker works.
        backpressure.watch(application, now=datetime.now(UTC))
        if self.redis.xlen(name):
            self._wake(application)

    def _follow_up(self) -> None:
        """Ask again for what nobody folds any more, and has no message on its way."""
        if self.asked:
            waiting, done = drain_requests.unasked(self.asked)
            self.asked -= done
            for application in waiting:
                self._wake(application)

    def _wake(self, application: str) -> None:
        """Have the application's stream folded, unless it is being, or that is on its way."""
        self.asked.add(application)
        message = drain_requests.claim(application)
        if message and self.redis.llen(DRAINS) < MOST_MESSAGES:
            self._send(tasks.drain, application, task_id=message)

    def _repeat(self, task: Task[Any, Any]) -> None:
        # What is not taken by then has been asked for again.
        if self.redis.llen(FOLDS) < MOST_MESSAGES:
            self._send(task, expires=EXPIRE_SECONDS)

    def _send(self, task: Task[Any, Any], *args: str, **options: Any) -> None:
        task.apply_async(args=args, retry=False, **options)


def _is_ours(stream: str) -> bool:
    try:
        check_name("application", redis_keys.application_of(stream))
    except InvalidValue:
        log.warning("%r is no application's stream; left alone", stream)
        return False
    return True


def _note_what_is_there() -> None:
    """Let each of the two servers remember when the other one was last seen."""
    redis_client.client().ping()
    try:
        actions.sighted("redis", "wake")
        actions.expected("housekeeper")
    except (DatabaseError, InterfaceError) as exc:
        log.warning("PostgreSQL is away: %s", exc)
        connection.close()
        return
    heartbeats.note_postgres(now=datetime.now(UTC))

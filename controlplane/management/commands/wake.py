"""Request folds when streams grow, periodic checks every five seconds, hourly housekeeping."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from celery.app.task import Task
from django.core.management.base import BaseCommand
from django.db import DatabaseError, InterfaceError, connection
from kombu.exceptions import OperationalError

from arrester.controlplane import actions, tasks
from arrester.controlplane.celery import STREAM_FOLDS, queue_of
from arrester.controlplane.ingest import fold_requests
from arrester.controlplane.outbound import agent_connections, backpressure
from arrester.controlplane.redis import event_streams, reachability, redis_client
from arrester.domain.errors import InvalidValue
from arrester.domain.identity import redis_keys
from arrester.domain.identity.names import check_name

log = logging.getLogger(__name__)
#: Interval for finding new streams; also the longest reaction time to a signal.
POLL_SECONDS = 1.0
#: Interval for finding entries, extended so that it takes at most this share of the time.
LOOK_SECONDS, LOOK_SHARE = 0.01, 0.05
SWEEP_SECONDS = 5
#: Limits of one scan for streams, since a shared Redis may have many other keys.
KEYS_PER_STEP = 1000
STEPS_PER_SCAN = 20
EXPIRE_SECONDS = 60
#: Housekeeping is requested this long after the last one, and again if it has not run by then.
HOUSEKEEPING_INTERVAL = timedelta(hours=1)
HOUSEKEEPING_REPEAT_SECONDS = 600.0
#: The periodic tasks, and the intervals between their requests; 0: at each sweep.
PERIODIC = {
    tasks.sweep: 0.0,
    tasks.watch: 0.0,
    tasks.alert: 0.0,
    tasks.check_quotas: 60.0,
    tasks.verify_audit: 60.0,
}
#: Failed records are indexed after new events, and this often, since a request may be lost.
INDEX_SECONDS = 60.0
#: The longest queue that gets messages: with a longer one, no worker runs, and they fill Redis.
MAXIMUM_MESSAGES = 1000


class Command(BaseCommand):
    help = "Wait for events and request folds until SIGTERM."
    # Checks would import all pages, 20 MB.
    requires_system_checks = []  # noqa: RUF012  # Django's own form

    def handle(self, *_args: Any, **_options: Any) -> None:
        stopped = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
        waker = Waker()
        self.stdout.write("wake started")
        self.stdout.flush()
        while not stopped.is_set():
            try:
                waker.poll()
            except (redis_client.RedisError, OperationalError) as exc:
                log.warning("Redis is unavailable: %s", exc)
                waker.next_sweep = 0.0
                stopped.wait(1)
        self.stdout.write("wake stopped")


class Waker:
    """The known streams; a fold is requested of each that has entries."""

    def __init__(self) -> None:
        self.redis, self.broker = redis_client.client(), redis_client.broker()
        #: Each with its pending-fold key.
        self.streams: dict[str, str] = {}
        #: The applications with a fold that is requested or may be running.
        self.requested: set[str] = set()
        self.next_discovery = self.next_sweep = 0.0
        #: When each task is requested again; missing: at the next sweep.
        self.next_request = {tasks.index_records: time.monotonic() + INDEX_SECONDS}
        #: Whether a fold was requested since failed records were indexed last.
        self.has_new_events = False
        #: The cursor of the scan through all keys of Redis; 0 after the last key.
        self.scan_cursor = 0

    def poll(self) -> None:
        """Wait up to a second for events, request folds, and sweep when it is due.

        A key that has the name of a stream and another type does not block other streams.
        """
        try:
            self._poll()
        except redis_client.ResponseError as exc:
            log.warning("Redis returned an error; searching for streams again: %s", exc)
            self.streams.clear()
            self.next_discovery = 0.0
            time.sleep(POLL_SECONDS)

    def _poll(self) -> None:
        now = time.monotonic()
        if now >= self.next_discovery:
            self.next_discovery = now + POLL_SECONDS
            self._discover()
            self._repeat_requests()
            # Often: until then Redis may refuse new connections, also of the server.
            agent_connections.close_surplus(now=datetime.now(UTC))
            if not self.redis.exists(redis_keys.WATCH):
                # This Redis is new or was emptied: LATCHED has to reach the agents soon.
                self.next_sweep = 0.0
        if now >= self.next_sweep:
            self.next_sweep = now + SWEEP_SECONDS
            self._sweep()
        if not self.streams:
            time.sleep(POLL_SECONDS)
            return
        self._wait(now + POLL_SECONDS)

    def _wait(self, until: float) -> None:
        """Request a fold of the streams that have entries; wait for these until a time."""
        while True:
            began = time.monotonic()
            found = event_streams.waiting(self.redis, self.streams)
            self._wake([*map(redis_keys.application_of, found)])
            now = time.monotonic()
            if found or now >= until:
                return
            time.sleep(min(max(LOOK_SECONDS, (now - began) / LOOK_SHARE), until - now))

    def _discover(self) -> None:
        """Scan more keys for new streams."""
        for _ in range(STEPS_PER_SCAN):
            answer: Any = self.redis.scan(
                self.scan_cursor,
                match=redis_keys.EVENT_STREAMS,
                count=KEYS_PER_STEP,
                _type="stream",
            )
            self.scan_cursor, keys = answer
            for name in (key.decode(errors="replace") for key in keys):
                if name not in self.streams and _is_ours(name):
                    application = redis_keys.application_of(name)
                    self.streams[name] = redis_keys.pending_fold(application)
            if not self.scan_cursor:
                return

    def _sweep(self) -> None:
        """Repeat the requests that a loss of messages or of Redis may have removed."""
        last_housekeeping = _record_servers()
        for task, seconds in PERIODIC.items():
            is_short = self.broker.llen(queue_of(task.name)) < MAXIMUM_MESSAGES
            # A message that no worker takes before it expires has been sent again by then.
            if is_short and self._is_due(task, seconds):
                self._send(task, expires=EXPIRE_SECONDS)
        if self._is_due(tasks.index_records, INDEX_SECONDS, now=self.has_new_events):
            self.has_new_events = False
            tasks.request_index()
        if last_housekeeping is not None:
            self._request_housekeeping(last_housekeeping)
        self._check_streams()

    def _request_housekeeping(self, last: datetime) -> None:
        """Request housekeeping if it is due. One that is requested twice does no harm."""
        # A time far ahead is from a clock that was wrong: nothing is due at it.
        due = abs(datetime.now(UTC) - last) >= HOUSEKEEPING_INTERVAL
        if due and self._is_due(tasks.housekeeping, HOUSEKEEPING_REPEAT_SECONDS):
            self._send(tasks.housekeeping, expires=HOUSEKEEPING_REPEAT_SECONDS)

    def _is_due(self, task: Task[Any, Any], seconds: float, *, now: bool = False) -> bool:
        """Whether to request a task now; if so, it is not due again for `seconds`."""
        if not now and time.monotonic() < self.next_request.get(task, 0.0):
            return False
        self.next_request[task] = time.monotonic() + seconds
        return True

    def _check_streams(self) -> None:
        # Checked here and not in a task, since it matters most while no worker runs.
        names = {redis_keys.application_of(name): name for name in self.streams}
        refused = backpressure.watch_all([*names], now=datetime.now(UTC))
        for application, exc in refused.items():
            log.warning("%s is ignored: %s", names[application], exc)
            del self.streams[names.pop(application)]
        backpressure.publish_memory_limit([*names], backpressure.memory_limit())

    def _repeat_requests(self) -> None:
        """Request the folds that have neither a running worker nor a message in the queue."""
        if self.requested:
            waiting, done = fold_requests.unrequested(self.requested)
            self.requested -= done
            self._wake(waiting)

    def _wake(self, applications: Collection[str]) -> None:
        """Request a fold of the applications, except where one is running or requested."""
        if not applications:
            return
        self.requested.update(applications)
        self.has_new_events = True
        claimed = fold_requests.claim(applications)
        if claimed and self.broker.llen(STREAM_FOLDS) < MAXIMUM_MESSAGES:
            for application, message in claimed.items():
                self._send(tasks.fold_stream, application, task_id=message)

    def _send(self, task: Task[Any, Any], *args: str, **options: Any) -> None:
        task.apply_async(args=args, retry=False, **options)


def _is_ours(stream: str) -> bool:
    try:
        check_name("application", redis_keys.application_of(stream))
    except InvalidValue:
        log.warning("%r is not the stream of an application; ignored", stream)
        return False
    return True


def _record_servers() -> datetime | None:
    """Record in each of the two servers when the other one was last seen.

    Return the time of the last housekeeping; None while PostgreSQL is unavailable.
    """
    redis_client.client().ping()
    try:
        actions.record_running("redis", "wake")
        last_housekeeping = actions.expect("housekeeper")
    except (DatabaseError, InterfaceError) as exc:
        log.warning("PostgreSQL is unavailable: %s", exc)
        connection.close()
        return None
    reachability.record_postgres(now=datetime.now(UTC))
    return last_housekeeping

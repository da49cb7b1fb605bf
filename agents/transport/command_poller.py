"""The thread that fetches commands and notices that the application is latched."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

from arrester.agents.transport.redis_client import BLOCK_SECONDS, RedisClient
from arrester.domain.commands.kinds import KINDS
from arrester.domain.errors import RedisUnavailable
from arrester.domain.events import CommandIssued
from arrester.domain.python_versions import UTC
from arrester.domain.wire import command_codec

log = logging.getLogger("arrester.poller")

BACK_OFF_SECONDS = (0.2, 10.0)
#: An instance of a latched application receives a command to stop; without one it stops after this
#: time.
LATCH_GRACE_SECONDS = 15.0
#: The server publishes the latch first, then the commands to stop.
LATCH_MOMENT_SECONDS = 1.0
FROM_THE_BEGINNING = "0"
#: The largest difference between clocks that is not logged, and how often they are compared.
CLOCK_LIMIT_SECONDS = 5.0
CLOCK_CHECK_SECONDS = 3600.0


class CommandPoller:
    """Fetch commands in a daemon thread, and pass each to `receive`, at least once.

    The second argument of `receive` is how far the server's clock is ahead of this host's.
    `on_latched` is called if the application has been latched for a while without a command to
    stop: the shutdown includes this instance, but the server did not know of it. An instance that
    has just started does not wait.
    """

    def __init__(
        self,
        redis: RedisClient,
        *,
        instance: UUID,
        receive: Callable[[CommandIssued, timedelta], None],
        on_latched: Callable[[], None],
    ) -> None:
        self._redis = redis
        self._instance = instance
        self._receive = receive
        self._on_latched = on_latched
        self._thread = threading.Thread(target=self._run, name="arrester-poller", daemon=True)
        self._stopping = threading.Event()
        self._after = FROM_THE_BEGINNING
        self._started = 0.0
        self._latched_since: float | None = None
        self._must_stop = False
        self._next_clock_check = 0.0
        self._back_off = BACK_OFF_SECONDS[0]
        #: Invalid entries; each is logged when it is read.
        self.malformed = 0
        #: Rounds that failed for a reason other than Redis.
        self.internal_errors = 0

    def start(self) -> None:
        """Start to fetch commands."""
        self._started = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """End without waiting for a read in progress."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._check_clock()
                self._check_latch()
                self._fetch(seconds=BLOCK_SECONDS)
                self._back_off = BACK_OFF_SECONDS[0]
                continue
            except RedisUnavailable:
                # Redis may have been emptied, and number its entries from the beginning.
                self._after = FROM_THE_BEGINNING
            except Exception:  # must neither end the thread silently nor reach a pipeline
                self.internal_errors += 1
                log.exception("a command could not be dispatched")
            self._stopping.wait(self._back_off)
            self._back_off = min(self._back_off * 2, BACK_OFF_SECONDS[1])

    def _fetch(self, *, seconds: float) -> None:
        """Pass on the commands that are there, or come within `seconds`."""
        entries = self._redis.commands(after=self._after, seconds=seconds)
        if not entries:
            return
        ahead = self._redis.server_time() - datetime.now(UTC)
        for id, body, authentic in entries:
            try:
                if not authentic:
                    raise ValueError("it has no valid signature of the server")
                command = command_codec.decode_command(body)
            except ValueError as exc:
                self.malformed += 1
                log.warning("entry %s of the command stream is invalid: %s", id, exc)
            else:
                latches = KINDS[command.kind].latches
                self._must_stop |= latches and self._instance in command.instances
                self._receive(command, ahead)
            self._after = id

    def _check_clock(self) -> None:
        """Log once an hour that this host's clock and that of Redis differ."""
        now = time.monotonic()
        if now < self._next_clock_check:
            return
        self._next_clock_check = now + CLOCK_CHECK_SECONDS
        ahead = (datetime.now(UTC) - self._redis.server_time()).total_seconds()
        if abs(ahead) > CLOCK_LIMIT_SECONDS:
            log.warning(
                "the clock of this host is %.0f s %s that of Redis, so times on the dashboard are"
                " wrong; synchronise both by NTP",
                *(abs(ahead), "ahead of" if ahead > 0 else "behind"),
            )

    def _check_latch(self) -> None:
        now = time.monotonic()
        if not self._redis.is_latched():
            self._latched_since = None
        elif self._latched_since is None:
            if now - self._started < LATCH_GRACE_SECONDS:
                # A command has precedence: it needs an answer.
                self._fetch(seconds=LATCH_MOMENT_SECONDS)
                if not self._must_stop:
                    self._on_latched()
            self._latched_since = now
        elif now - self._latched_since >= LATCH_GRACE_SECONDS:
            self._latched_since = now
            self._on_latched()

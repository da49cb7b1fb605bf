"""The thread that sends the spool's batches to Redis, reads confirmations and sends heartbeats."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from datetime import datetime

from arrester.agents.transport.confirmations import Confirmations
from arrester.agents.transport.redis_client import (
    AppendStatus,
    RedisClient,
    RedisRefused,
)
from arrester.agents.transport.spool import Spool
from arrester.domain.errors import RedisUnavailable
from arrester.domain.identity.redis_keys import HEARTBEAT_SECONDS
from arrester.domain.plural import plural
from arrester.domain.python_versions import UTC

log = logging.getLogger("arrester.sender")

BATCHES_AT_ONCE = 64
BYTES_AT_ONCE = 4 * 2**20
#: The wait between two attempts while Redis is unreachable: doubled from the first to the last.
BACK_OFF_SECONDS = (0.2, 10.0)
#: The wait between two reads of confirmations: doubled while none come.
CONFIRM_SECONDS = (0.05, 2.0)
#: The wait while the stream is at its limit.
FULL_SECONDS = 1.0
#: The time that the end of an instance waits for confirmations.
LAST_CONFIRM_SECONDS = 1.0


class Sender:
    """Send in a daemon thread; its failures never affect a pipeline.

    `heartbeat` returns the packed heartbeat; `report` is called with the id of each report that the
    server requests, and must not wait.
    """

    def __init__(
        self,
        spool: Spool,
        redis: RedisClient,
        *,
        heartbeat: Callable[[], bytes],
        report: Callable[[str], None] = lambda id: None,
    ) -> None:
        self._spool = spool
        self._redis = redis
        self._confirmations = Confirmations(redis, spool.id)
        self._heartbeat = heartbeat
        self._report = report
        #: The id of the last requested report.
        self._last_report: str | None = None
        self._thread = threading.Thread(target=self._run, name="arrester-sender", daemon=True)
        self._stopping = threading.Event()
        #: Ends a back-off: the instance is about to end.
        self._urgent = threading.Event()
        self._next_beat = 0.0
        self._confirm_wait, self._back_off = CONFIRM_SECONDS[0], BACK_OFF_SECONDS[0]
        #: Whether the last round succeeded; None before the first.
        self.reachable: bool | None = None
        #: Whether Redis was full since everything was last sent.
        self._full = False
        self.sent = 0
        self.confirmed = 0
        #: Batches that Redis had accepted and lost; they were sent again.
        self.lost = 0
        #: Rounds that failed for a reason other than Redis.
        self.internal_errors = 0
        self._failures = 0
        #: Whether Redis refused the last round.
        self._refused = False

    def start(self) -> None:
        """Start to send; batches left in the spool go first."""
        self._thread.start()

    def stop(self, *, flush_seconds: float) -> bool:
        """Send what is left within `flush_seconds`, and end; return whether everything was sent."""
        done = self._flush(flush_seconds)
        self._stopping.set()
        self._spool.wake.set()
        self._urgent.set()
        self._thread.join(flush_seconds)
        return done

    def _flush(self, seconds: float) -> bool:
        begin, failures = time.monotonic(), self._failures
        self._urgent.set()
        self._spool.wake.set()
        while time.monotonic() < begin + seconds and self._failures == failures:
            if self._spool.events == 0:
                return True
            if not self._has_unsent() and time.monotonic() > begin + LAST_CONFIRM_SECONDS:
                return True
            time.sleep(0.01)
        return False

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._spool.wake.clear()
            try:
                pause = self._round()
            except (RedisUnavailable, sqlite3.Error) as exc:
                self._wait_after(exc)
            except Exception:  # must neither end the thread silently nor reach a pipeline
                self.internal_errors += 1
                log.exception("sending events failed; they stay in the spool")
                self._wait_after(None)
            else:
                if self.reachable is False:
                    waiting = plural(self._spool.events, "event")
                    log.info("Redis answers again; %s to send", waiting)
                self.reachable = True
                self._back_off = BACK_OFF_SECONDS[0]
                self._spool.wake.wait(pause)

    def _round(self) -> float:
        """Send heartbeat and batches if due; return the seconds until something is due again."""
        self._spool.write()
        has_beaten = self._beat_when_due()
        status = self._send(check=has_beaten)
        if status is AppendStatus.LOST:
            return 0.0
        due = max(0.0, self._next_beat - time.monotonic())
        if self._spool.events:
            due = min(due, self._confirm())
        if status is AppendStatus.FULL:
            if not self._full:
                log.warning("Redis has no space for events; they wait in %s", self._spool.path)
            self._full = True
            return min(due, FULL_SECONDS)
        if self._has_unsent():
            return 0.0
        self._full = False
        return due

    def _has_unsent(self) -> bool:
        return bool(self._spool.unsent(most=1, most_bytes=1))

    def _beat_when_due(self) -> bool:
        """Send the heartbeat and read the server's requests; return False if it is not due."""
        if time.monotonic() < self._next_beat:
            return False
        self._spool.put_flow(datetime.now(UTC))
        counts_only, report = self._redis.beat(self._heartbeat())
        if counts_only is not self._spool.counts_only:
            self._spool.counts_only = counts_only
            how = "counted only" if counts_only else "reported in full again"
            log.warning("the server's load changed: failed records are %s", how)
        if report is not None and report != self._last_report:
            self._last_report = report
            self._report(report)
        self._spool.shrink()
        self._next_beat = time.monotonic() + HEARTBEAT_SECONDS
        return True

    def _send(self, *, check: bool) -> AppendStatus:
        """Send the oldest unsent batches; without any, `check` whether Redis lost the last one."""
        batches = self._spool.unsent(most=BATCHES_AT_ONCE, most_bytes=BYTES_AT_ONCE)
        last = self._spool.last_sent()
        if not batches and (last is None or not check):
            return AppendStatus.DONE
        status, entries = self._redis.append(self._spool.id, batches, last=last)
        if status is AppendStatus.LOST:
            lost = self._spool.mark_lost()
            self.lost += lost
            log.warning("Redis lost batches; %s batches are sent again", lost)
        if entries:
            self._spool.mark_sent(batches, entries)
            self.sent += len(entries)
            self._confirm_wait = CONFIRM_SECONDS[0]
        return status

    def _confirm(self) -> float:
        """Delete confirmed batches from the spool, and only then their confirmations.

        Return the seconds until the next read.
        """
        ids = self._confirmations.read()
        if ids:
            self._spool.confirm(ids)
            self._confirmations.forget(ids)
            self.confirmed += len(ids)
        shortest, longest = CONFIRM_SECONDS
        self._confirm_wait = shortest if ids else min(self._confirm_wait * 2, longest)
        return self._confirm_wait

    def _wait_after(self, exc: Exception | None) -> None:
        refused = isinstance(exc, RedisRefused)
        if exc is not None and (self.reachable is not False or refused > self._refused):
            # A refusal needs an operator, an outage may end by itself.
            level = logging.ERROR if refused else logging.WARNING
            message = "%s; the pipeline continues, events wait in %s"
            log.log(level, message, exc, self._spool.path)
        self._refused = refused
        self.reachable = False
        # No server requests it any more.
        self._spool.counts_only = False
        self._failures += 1
        if not self._urgent.wait(self._back_off):
            self._back_off = min(self._back_off * 2, BACK_OFF_SECONDS[1])

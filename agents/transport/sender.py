"""The thread that sends batches from the spool to Redis, sends heartbeats and reads
confirmations."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from arrester.agents.transport.messages import ServerRequests, TransportDown, Verdict
from arrester.agents.transport.spool import Spool
from arrester.controlplane.domain.identity.redis_keys import HEARTBEAT_SECONDS

if TYPE_CHECKING:
    from arrester.agents.transport.redis_client import Transport

log = logging.getLogger("arrester.sender")

BATCHES_AT_ONCE = 64
BYTES_AT_ONCE = 4 * 2**20
#: The wait between two attempts while Redis is unreachable: doubled from the first to the last.
BACK_OFF_SECONDS = (0.2, 10.0)
#: The wait between two checks for due confirmations: doubled while none come.
LOOK_SECONDS = (0.05, 2.0)
#: The wait while the stream is at its limit.
FULL_SECONDS = 1.0
#: The time that the end of an instance waits for confirmations.
LAST_LOOK_SECONDS = 1.0


class Sender:
    """Runs as a daemon thread; its failures never affect a pipeline.

    `heartbeat` returns the packed heartbeat; `report` is called with the id of each report that the
    server requests, and must not wait.
    """

    def __init__(
        self,
        spool: Spool,
        transport: Transport,
        *,
        heartbeat: Callable[[], bytes],
        report: Callable[[str], None] = lambda id: None,
    ) -> None:
        self._spool = spool
        self._transport = transport
        self._heartbeat = heartbeat
        self._report = report
        self._reported: str | None = None
        self._thread = threading.Thread(target=self._run, name="arrester-sender", daemon=True)
        self._stopping = threading.Event()
        #: Ends a back-off: the instance is about to end.
        self._urgent = threading.Event()
        self._next_beat = 0.0
        self._look, self._back_off = LOOK_SECONDS[0], BACK_OFF_SECONDS[0]
        #: Whether the last round succeeded; None before the first.
        self.reachable: bool | None = None
        #: Whether Redis was full since everything was last sent.
        self._full = False
        self.sent = 0
        self.confirmed = 0
        #: Batches that Redis had accepted and lost; they were sent again.
        self.lost = 0
        #: Rounds that failed for a reason other than Redis.
        self.guest_errors = 0
        self._failures = 0

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
            sent = not self._spool.unsent(most=1, most_bytes=1)
            if sent and time.monotonic() > begin + LAST_LOOK_SECONDS:
                return True
            time.sleep(0.01)
        return False

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._spool.wake.clear()
            try:
                pause = self._round()
            except (TransportDown, sqlite3.Error) as exc:
                self._wait_out(exc)
            except Exception:  # the guest must not end silently, nor break its host
                self.guest_errors += 1
                log.exception("sending events failed; they stay in the spool")
                self._wait_out(None)
            else:
                self._came_back()
                self._spool.wake.wait(pause)

    def _round(self) -> float:
        """Do what is due; return the seconds until something is due again."""
        self._spool.write()
        beats = self._beat_when_due()
        verdict = self._send(check=beats)
        if verdict is Verdict.LOST:
            return 0.0
        due = max(0.0, self._next_beat - time.monotonic())
        if self._spool.events:
            due = min(due, self._next_look(self._confirm()))
        if verdict is Verdict.FULL:
            self._say_full()
            return min(due, FULL_SECONDS)
        if self._spool.unsent(most=1, most_bytes=1):
            return 0.0
        self._full = False
        return due

    def _say_full(self) -> None:
        """Log once until all waiting batches are sent."""
        if not self._full:
            log.warning("Redis has no room for events; they wait in %s", self._spool.path)
        self._full = True

    def _beat_when_due(self) -> bool:
        if time.monotonic() < self._next_beat:
            return False
        self._obey(self._transport.beat(self._heartbeat()))
        self._spool.shrink()
        self._next_beat = time.monotonic() + HEARTBEAT_SECONDS
        return True

    def _obey(self, asked: ServerRequests) -> None:
        """Apply the server's requests: count failures only while it is overloaded, report on
        demand."""
        if asked.counts_only is not self._spool.counts_only:
            self._spool.counts_only = asked.counts_only
            word = "counted instead of described" if asked.counts_only else "described again"
            log.warning("the server's fold decides: failed records are %s", word)
        if asked.report is not None and asked.report != self._reported:
            self._reported = asked.report
            self._report(asked.report)

    def _send(self, *, check: bool) -> Verdict:
        """Send the oldest unsent batches to Redis; without any, `check` what it has."""
        batches = self._spool.unsent(most=BATCHES_AT_ONCE, most_bytes=BYTES_AT_ONCE)
        last = self._spool.last_sent()
        if not batches and (last is None or not check):
            return Verdict.DONE
        answer = self._transport.append(self._spool.id, batches, last=last)
        if answer.verdict is Verdict.LOST:
            again = self._spool.mark_lost()
            self.lost += again
            log.warning("Redis lost batches; %s batches are sent again", again)
        if answer.entries:
            self._spool.mark_sent(batches, answer.entries)
            self.sent += len(answer.entries)
            self._look = LOOK_SECONDS[0]
        return answer.verdict

    def _confirm(self) -> list[UUID]:
        """Delete confirmed batches from the spool, and only then their confirmations."""
        ids = self._transport.confirmations(self._spool.id)
        if ids:
            self._spool.confirm(ids)
            self._transport.forget_confirmations(self._spool.id, ids)
            self.confirmed += len(ids)
        return ids

    def _next_look(self, confirmed: list[UUID]) -> float:
        least, most = LOOK_SECONDS
        self._look = least if confirmed else min(self._look * 2, most)
        return self._look

    def _wait_out(self, why: Exception | None) -> None:
        if self.reachable is not False and why is not None:
            log.warning("%s; the pipeline continues, events wait in %s", why, self._spool.path)
        self.reachable = False
        # No server requests it any more.
        self._spool.counts_only = False
        self._failures += 1
        if not self._urgent.wait(self._back_off):
            self._back_off = min(self._back_off * 2, BACK_OFF_SECONDS[1])

    def _came_back(self) -> None:
        if self.reachable is False:
            log.info("Redis answers again; %s events wait to be sent", self._spool.events)
        self.reachable = True
        self._back_off = BACK_OFF_SECONDS[0]

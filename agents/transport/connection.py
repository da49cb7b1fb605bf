"""The instance's connection to the server: always a spool; Redis and its threads if configured."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from arrester.agents.config import AgentConfig
from arrester.agents.transport.command_poller import Poller
from arrester.agents.transport.messages import TransportDown
from arrester.agents.transport.sender import Sender
from arrester.agents.transport.spool import Spool
from arrester.agents.transport.spool_ownership import open_spool
from arrester.controlplane.domain.events import CommandIssued

if TYPE_CHECKING:
    from arrester.agents.transport.redis_client import Transport

log = logging.getLogger("arrester.agent")

#: The time that the end of an instance waits for its last events to be sent.
FLUSH_SECONDS = 5.0
#: The time that a start waits to learn whether the application is latched.
LATCH_SECONDS = 5.0


class Connection:
    """Opened and closed with the instance. Without REDIS_URL it only stores events."""

    def __init__(self, config: AgentConfig, instance: UUID) -> None:
        self._own = open_spool(
            config.spool_folder,
            config.application,
            limit_bytes=config.errors.spool_bytes,
            now=datetime.now(UTC),
        )
        self._application = config.application
        self._instance = instance
        self._transport = _transport(config, instance)
        self._sender: Sender | None = None
        self._poller: Poller | None = None

    @property
    def spool(self) -> Spool:
        """The spool, to which all events go first."""
        return self._own.spool

    def is_latched(self) -> bool:
        """Return whether the application is known to be LATCHED; unknown counts as OPEN.

        Runs in a separate thread: resolving a host name alone may take longer than a start may
        wait.
        """
        transport = self._transport
        if transport is None:
            return False
        answers: list[bool] = []

        def ask() -> None:
            try:
                answers.append(transport.is_latched())
            except TransportDown as exc:
                log.warning("%s", exc)

        java_inspector = threading.Thread(target=ask, name="arrester-latch", daemon=True)
        java_inspector.start()
        java_inspector.join(LATCH_SECONDS)
        if not answers:
            log.warning(
                "%s: it is unknown whether the application is latched; this instance starts",
                self._application,
            )
        return any(answers)

    def start_sending(
        self, *, heartbeat: Callable[[], bytes], report: Callable[[str], None] = lambda id: None
    ) -> None:
        """Start to send the spool's batches; `report` is called when the server requests a
        report."""
        if self._transport is None:
            return
        self._sender = Sender(self.spool, self._transport, heartbeat=heartbeat, report=report)
        self._sender.start()

    def start_listening(
        self,
        *,
        take: Callable[[CommandIssued, timedelta], None],
        on_latched: Callable[[], None],
    ) -> None:
        """Start to fetch commands."""
        if self._transport is None:
            return
        self._poller = Poller(
            self._transport, instance=self._instance, take=take, on_latched=on_latched
        )
        self._poller.start()

    def close(self) -> bool:
        """Send what can be sent within some seconds and release everything.

        Return whether Redis has all of it. What is left in the spool is sent by the application's
        next instance on this host.
        """
        sent = False
        if self._poller is not None:
            self._poller.stop()
        if self._sender is not None and (sent := self._sender.stop(flush_seconds=FLUSH_SECONDS)):
            self._fall_silent()
        if self._transport is not None:
            self._transport.close()
        self._own.close()
        return sent

    def metrics(self) -> dict[str, int]:
        """Return counts of sent and failed batches."""
        counts = {
            "events-spooled": self.spool.events,
            "spool-bytes": self.spool.size_bytes,
            "spool-write-failures": self.spool.write_failures,
            "failures-told-briefly": self.spool.counted_only,
            "batches-dropped": self.spool.dropped,
        }
        if self._sender is not None:
            counts |= {
                "batches-sent": self._sender.sent,
                "batches-confirmed": self._sender.confirmed,
                "batches-lost-by-redis": self._sender.lost,
                "redis-reachable": int(self._sender.reachable is True),
                "sender-errors": self._sender.guest_errors,
            }
        if self._poller is not None:
            counts |= {
                "commands-malformed": self._poller.malformed,
                "poller-errors": self._poller.guest_errors,
            }
        return counts

    def _fall_silent(self) -> None:
        if self._transport is not None:
            try:
                self._transport.fall_silent()
            except TransportDown as exc:
                log.debug("the heartbeat ends by itself: %s", exc)


def _transport(config: AgentConfig, instance: UUID) -> Transport | None:
    """Return the client of Redis; redis is imported only here, and only if it is configured."""
    if config.redis_url is None:
        return None
    from arrester.agents.transport.redis_client import Transport

    return Transport(config.redis_url, application=config.application, instance=instance)

"""The instance's connection to the server: always a spool; Redis and its threads if configured."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

from arrester.agents.config import AgentConfig
from arrester.agents.transport.command_poller import CommandPoller
from arrester.agents.transport.redis_client import RedisClient
from arrester.agents.transport.sender import Sender
from arrester.agents.transport.server_keys import ServerKeys
from arrester.agents.transport.spool_ownership import open_spool
from arrester.domain.errors import RedisUnavailable
from arrester.domain.events import CommandIssued
from arrester.domain.python_versions import UTC
from arrester.domain.wire.signed_messages import SERVER_KEY

log = logging.getLogger("arrester.agent")

#: The time that the end of an instance waits for its last events to be sent.
FLUSH_SECONDS = 5.0
#: The time that a start waits to learn whether the application is latched.
LATCH_SECONDS = 5.0


class Connection:
    """Opened and closed with the instance. Without REDIS_URL it only stores events."""

    def __init__(self, config: AgentConfig, instance: UUID) -> None:
        application, url = config.application, config.redis_url
        self._own_spool = open_spool(
            config.spool_folder,
            application,
            limit_bytes=config.errors.spool_bytes,
            now=datetime.now(UTC),
        )
        #: All events go here first.
        self.spool = self._own_spool.spool
        self._application = application
        self._instance = instance
        self._redis = (
            None
            if url is None
            else RedisClient(
                url,
                application=application,
                instance=instance,
                keys=ServerKeys(config.server_keys, application=application)
                if config.server_keys
                else None,
            )
        )
        if url is None:
            message = "%s: REDIS_URL is not set: no server shows this instance, events stay in %s"
            log.info(message, application, self.spool.path)
        elif not config.server_keys:
            log.info(
                "%s: %s is not set: commands, states and confirmations in Redis are accepted "
                "without a signature of the server",
                application,
                SERVER_KEY,
            )
        self._sender: Sender | None = None
        self._poller: CommandPoller | None = None
        #: Who latched the application, and why; None if unknown.
        self.latched_by: str | None = None

    def is_latched(self) -> bool:
        """Return whether the application is known to be LATCHED; unknown counts as OPEN.

        Runs in a separate thread: resolving a host name alone may take longer than a start may
        wait.
        """
        redis = self._redis
        if redis is None:
            return False
        answers: list[bool] = []

        def read() -> None:
            try:
                answers.append(redis.is_latched())
                if answers[0]:
                    self.latched_by = redis.latched_by()
            except RedisUnavailable as exc:
                log.warning("%s", exc)

        reader = threading.Thread(target=read, name="arrester-latch", daemon=True)
        reader.start()
        reader.join(LATCH_SECONDS)
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
        if self._redis is not None:
            self._sender = Sender(self.spool, self._redis, heartbeat=heartbeat, report=report)
            self._sender.start()

    def start_polling(
        self,
        *,
        receive: Callable[[CommandIssued, timedelta], None],
        on_latched: Callable[[], None],
    ) -> None:
        """Start to fetch commands."""
        if self._redis is not None:
            self._poller = CommandPoller(
                self._redis, instance=self._instance, receive=receive, on_latched=on_latched
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
        if self._sender is not None:
            self.spool.put_flow(datetime.now(UTC), all=True)
            sent = self._sender.stop(flush_seconds=FLUSH_SECONDS)
        if self._redis is not None:
            if sent:
                try:
                    self._redis.delete_heartbeat()
                except RedisUnavailable as exc:
                    log.debug("the heartbeat expires by itself: %s", exc)
            self._redis.close()
        self._own_spool.close()
        return sent

    def metrics(self) -> dict[str, int]:
        """Return the metrics of the spool, and with a server those of its threads."""
        counts = {
            "events-spooled": self.spool.events,
            "spool-bytes": self.spool.size_bytes,
            "spool-write-failures": self.spool.write_failures,
            "failures-counted-only": self.spool.counted_only,
            "batches-dropped": self.spool.dropped,
        }
        if self._sender is not None:
            counts |= {
                "batches-sent": self._sender.sent,
                "batches-confirmed": self._sender.confirmed,
                "batches-lost-by-redis": self._sender.lost,
                "redis-reachable": int(self._sender.reachable is True),
                "sender-errors": self._sender.internal_errors,
            }
        if self._poller is not None:
            counts |= {
                "commands-malformed": self._poller.malformed,
                "poller-errors": self._poller.internal_errors,
            }
        if self._redis is not None and self._redis.keys is not None:
            counts["signatures-refused"] = self._redis.keys.refused
        return counts

"""The function that Spark calls with each micro-batch, and its release.

PySpark keeps such a function as long as the JVM keeps the query, and a Python thread for each JVM
thread that called one. Without release, each replaced query would leak both.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame

from arrester.agents.stop_signal import BatchEnded

_log = logging.getLogger("arrester.thread")

OnBatch = Callable[[DataFrame, int], None]


class Callback:
    """Calls `on_batch` until `let_go`. Each query has its own."""

    def __init__(self, on_batch: OnBatch) -> None:
        self._on_batch: OnBatch | None = on_batch
        #: py4j's thread, with its connection to the calling JVM thread.
        self._caller: threading.Thread | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Handle a call from py4j; raises BatchEnded after `let_go`.

        If it returned, Spark would commit a micro-batch that was not written.
        """
        self._caller = threading.current_thread()
        on_batch = self._on_batch
        if on_batch is None:
            raise BatchEnded("the query has been let go")
        on_batch(frame, batch)

    def let_go(self) -> None:
        """Release what the query held. It has ended, so the JVM calls no more."""
        self._on_batch = None
        try:
            self._leave_pool()
            self._hang_up()
        except Exception:  # py4j's inner parts: another version may have them elsewhere
            _log.debug("what a query left behind stays until the JVM lets go", exc_info=True)

    def _leave_pool(self) -> None:
        gateway: Any = SparkContext._gateway
        if gateway is None:
            return
        pool = gateway.gateway_property.pool
        for id, proxy in list(pool.dict.items()):
            if getattr(proxy, "func", None) is self:
                del pool[id]

    def _hang_up(self) -> None:
        """End py4j's thread for the JVM thread of the ended query."""
        caller, self._caller = self._caller, None
        serves = getattr(getattr(caller, "_target", None), "__self__", None)
        connection = getattr(serves, "socket", None)
        if caller is not threading.current_thread() and isinstance(connection, socket.socket):
            connection.shutdown(socket.SHUT_RDWR)

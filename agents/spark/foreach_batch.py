"""A streaming query whose micro-batches call a Python function: its stop and its release.

PySpark keeps such a function as long as the JVM keeps the query, and a Python thread for each JVM
thread that called one. Without release, each replaced query would leak both.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from arrester.agents.stop_signal import BatchEnded, BatchStopped

_log = logging.getLogger("arrester.thread")

OnBatch = Callable[[DataFrame, int], None]

#: How long a micro-batch waits until Spark knows of the stop.
_STOP_SECONDS = 10.0
_STOP_TICK_SECONDS = 0.01
#: In a stopped query, Spark takes an exception of Python with this text for the interrupt of the
#: stop. It logs any other as the failure of the query.
_INTERRUPTED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling foreachBatch: "
    "java.lang.InterruptedException"
)


#: The ids of released functions that the JVM still has.
_released: set[str] = set()


def _is_no_end(record: logging.LogRecord) -> bool:
    exc = record.exc_info[1] if record.exc_info else None
    return not isinstance(exc, BatchEnded | BatchStopped)


def _is_no_release(record: logging.LogRecord) -> bool:
    id = record.getMessage().rpartition(" ")[2]
    if id not in _released:
        return True
    _released.discard(id)
    return False


# py4j logs each exception that leaves a Python function as an error, and warns about each function
# that the JVM releases after us.
logging.getLogger("py4j.clientserver").addFilter(_is_no_end)
logging.getLogger("py4j.java_gateway").addFilter(_is_no_release)


class ForeachBatchQuery:
    """A query that calls `on_batch` until it is stopped."""

    def __init__(self, writer: DataStreamWriter, on_batch: OnBatch) -> None:
        """Start it."""
        self._on_batch: OnBatch | None = on_batch
        #: py4j's thread, with its connection to the calling JVM thread.
        self._caller: threading.Thread | None = None
        self._stopping = threading.Lock()
        self._started: Future[StreamingQuery] = Future()
        try:
            self._started.set_result(writer.foreachBatch(self).start())
        except BaseException as exc:
            self._started.set_exception(exc)
            self._release()
            raise

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Handle a call from py4j; raises BatchEnded after the release.

        If it returned, Spark would commit a micro-batch that was not written.
        """
        self._caller = threading.current_thread()
        on_batch = self._on_batch
        if on_batch is None:
            raise BatchEnded("the query was released")
        try:
            on_batch(frame, batch)
        except BatchStopped as exc:
            self._begin_stop()
            raise BatchStopped(f"{_INTERRUPTED} ({exc})") from None

    @property
    def id(self) -> str:
        """The id of its checkpoint."""
        return str(self._started.result().id)

    @property
    def isActive(self) -> bool:
        """Whether it has not ended."""
        return self._started.result().isActive

    def awaitTermination(self) -> object:
        """Wait for its end; raises the exception that ended it."""
        return self._started.result().awaitTermination()

    def exception(self) -> BaseException | None:
        """Return the exception that ended it."""
        return self._started.result().exception()

    def stop(self) -> None:
        """Stop it, and wait until the running micro-batch has ended."""
        query = self._started.result()
        # Spark warns at each stop of a query without jobs.
        with self._stopping:
            if query.isActive:
                query.stop()
            else:
                # Until then, Spark starts no other query at the checkpoint.
                with suppress(Exception):
                    query.awaitTermination()
            self._release()

    def _begin_stop(self) -> None:
        """Stop the query in another thread: a stop waits for the end of this micro-batch."""
        try:
            query = self._started.result(_STOP_SECONDS)
            threading.Thread(target=self._stop_quietly, name="arrester-stop", daemon=True).start()
            deadline = time.monotonic() + _STOP_SECONDS
            while query.isActive and time.monotonic() < deadline:
                time.sleep(_STOP_TICK_SECONDS)
        except Exception:  # Spark then logs the end as an error
            _log.debug("a query could not be stopped from its micro-batch", exc_info=True)

    def _stop_quietly(self) -> None:
        try:
            self.stop()
        except Exception:
            _log.debug("a query ended while it was stopped", exc_info=True)

    def _release(self) -> None:
        """Release what the query held. It has ended, so the JVM calls no more."""
        self._on_batch = None
        try:
            self._remove_from_pool()
            self._close_connection()
        except Exception:  # py4j's inner parts: another version may have them elsewhere
            _log.debug("a query's callback stays until the JVM releases it", exc_info=True)

    def _remove_from_pool(self) -> None:
        gateway: Any = SparkContext._gateway
        if gateway is None:
            return
        pool = gateway.gateway_property.pool
        for id, proxy in list(pool.dict.items()):
            if getattr(proxy, "func", None) is self:
                _released.add(id)
                del pool[id]

    def _close_connection(self) -> None:
        """End py4j's thread for the JVM thread of the ended query."""
        caller, self._caller = self._caller, None
        server = getattr(getattr(caller, "_target", None), "__self__", None)
        connection = getattr(server, "socket", None)
        if caller is not threading.current_thread() and isinstance(connection, socket.socket):
            connection.shutdown(socket.SHUT_RDWR)

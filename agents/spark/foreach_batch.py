"""A streaming query whose micro-batches call a Python function: its stop and its release."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from arrester.agents.spark.jvm.callbacks import release_callback
from arrester.agents.spark.jvm.progress_reports import NO_REPORT, reports_after
from arrester.agents.spark.query_progress import Progress, progress_of
from arrester.agents.stop_signal import BatchEnded, BatchStopped

_log = logging.getLogger("arrester.thread")

OnBatch = Callable[[DataFrame, int], None]

#: How long a micro-batch waits until Spark knows of the stop.
_STOP_SECONDS = 10.0
_STOP_TICK_SECONDS = 0.01
#: How long a stop waits until Spark has committed the last micro-batch; that takes some 50 ms.
_COMMIT_SECONDS = 3.0
#: In a stopped query, Spark takes an exception of Python with this text for the interrupt of the
#: stop; Spark 3.5 needs the line break. It logs any other exception as the query's failure.
_INTERRUPTED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling foreachBatch.\n"
    ": java.lang.InterruptedException"
)


class ForeachBatchQuery:
    """A query that calls `on_batch` until it is stopped."""

    def __init__(self, writer: DataStreamWriter, on_batch: OnBatch) -> None:
        """Start the query."""
        self._on_batch: OnBatch | None = on_batch
        #: The thread that py4j runs for the calling thread of the JVM.
        self._caller: threading.Thread | None = None
        #: The number of the last micro-batch that was written.
        self._written: int | None = None
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
            self._written = batch
        except BatchStopped as exc:
            self._begin_stop()
            raise BatchStopped(f"{_INTERRUPTED} ({exc})") from None

    @property
    def id(self) -> str:
        """The ID of the query, which is stored in its checkpoint."""
        return str(self._started.result().id)

    @property
    def isActive(self) -> bool:
        """Whether the query has not ended."""
        return self._started.result().isActive

    @property
    def rows_per_second(self) -> float | None:
        """The rows that Spark processed per second in the last micro-batch; None if unknown."""
        # A query that ends meanwhile, or a stopped session, has no progress to read.
        with suppress(Exception):
            progress = self._started.result().lastProgress
            return progress.get("processedRowsPerSecond") if progress else None
        return None

    def progress_after(self, last: Progress | None) -> list[Progress]:
        """Return the newer reports of Spark, oldest first."""
        timestamp = NO_REPORT if last is None else last.timestamp
        return [progress_of(each) for each in reports_after(self._started.result(), timestamp)]

    def awaitTermination(self) -> object:
        """Wait for the end of the query; raises the exception that ended it."""
        return self._started.result().awaitTermination()

    def exception(self) -> BaseException | None:
        """Return the exception that ended the query."""
        return self._started.result().exception()

    def stop(self) -> None:
        """Stop the query, and wait until the running micro-batch has ended."""
        query = self._started.result()
        # Spark warns at each stop of a query without jobs.
        with self._stopping:
            if query.isActive:
                self._await_commit(query)
                query.stop()
            else:
                # Until it has terminated, Spark starts no other query at the checkpoint.
                with suppress(Exception):
                    query.awaitTermination()
            self._release()

    def _await_commit(self, query: StreamingQuery) -> None:
        """Wait until Spark has committed the last micro-batch that was written.

        A stop interrupts Spark's commit, and the next run would write the micro-batch again.
        """
        deadline = time.monotonic() + _COMMIT_SECONDS
        while self._written is not None and query.isActive and time.monotonic() < deadline:
            # Spark reports the progress of a micro-batch after its commit.
            progress = query.lastProgress
            if progress is not None and progress["batchId"] >= self._written:
                return
            time.sleep(_STOP_TICK_SECONDS)

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
        """Release what the query held. It has ended, so the JVM does not call any more."""
        self._on_batch = None
        caller, self._caller = self._caller, None
        release_callback(self, caller)

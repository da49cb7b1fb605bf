"""What feeds a run: Spark's streaming query, or one pass over a static DataFrame."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol
from uuid import uuid4

from pyspark import InheritableThread
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from arrester.agents.definition.pipeline import Pipeline, Trigger
from arrester.agents.journal.storage import (
    CheckpointUnusable,
    FileExists,
    Storage,
    is_committed,
)
from arrester.agents.spark.foreach_batch import Callback, OnBatch
from arrester.agents.spark.hadoop import storage

#: Beside the checkpoint of a static source: what Spark keeps for a streaming one.
BATCH_FOLDER = "arrester/batch"
_SPARK_FOLDERS = ("offsets", "commits", "sources")
#: A static source is one micro-batch.
_ONLY = 0


class Query(Protocol):
    """The part of Spark's StreamingQuery that a run needs."""

    @property
    def isActive(self) -> bool: ...

    def awaitTermination(self) -> object: ...

    def exception(self) -> BaseException | None: ...

    def stop(self) -> None: ...


def progress_of(pipeline: Pipeline, files: Storage) -> Storage:
    """Return where it stands which micro-batches are planned and committed.

    Raises CheckpointUnusable for a checkpoint of the other kind of source.
    """
    if pipeline.source.isStreaming:
        if files.exists(BATCH_FOLDER):
            raise CheckpointUnusable(
                f"{files.root} is the checkpoint of a static source; a stream needs one of its own"
            )
        return files
    if any(files.exists(folder) for folder in _SPARK_FOLDERS):
        raise CheckpointUnusable(
            f"{files.root} is the checkpoint of a stream; a static source needs one of its own"
        )
    return storage(pipeline.source.sparkSession, f"{files.root}/{BATCH_FOLDER}")


def start_query(
    pipeline: Pipeline,
    checkpoint: str,
    progress: Storage,
    on_batch: OnBatch,
    trigger: Trigger | None,
) -> Query:
    """Start what calls `on_batch`."""
    if not pipeline.source.isStreaming:
        return StaticQuery(pipeline.source, progress, on_batch)
    callback = Callback(on_batch)
    writer = pipeline.source.writeStream.foreachBatch(callback)
    writer = writer.option("checkpointLocation", checkpoint)
    if trigger:
        writer = writer.trigger(**trigger)
    try:
        return StreamQuery(writer.start(), callback)
    except BaseException:
        callback.let_go()
        raise


class StreamQuery:
    """Spark's streaming query; stopped, it leaves nothing behind."""

    def __init__(self, query: StreamingQuery, callback: Callback) -> None:
        self._query = query
        self._callback = callback

    @property
    def id(self) -> str:
        """The id of its checkpoint."""
        return str(self._query.id)

    @property
    def isActive(self) -> bool:
        """Whether it runs."""
        return self._query.isActive

    def awaitTermination(self) -> object:
        """Wait for its end."""
        return self._query.awaitTermination()

    def exception(self) -> BaseException | None:
        """What it died of."""
        return self._query.exception()

    def stop(self) -> None:
        """Stop it, and wait until the micro-batch at work is over."""
        self._query.stop()
        self._callback.let_go()


class StaticQuery:
    """One pass over a static DataFrame, planned and committed as Spark does it for a stream.

    A checkpoint whose pass is committed has no further one: a rerun gives the sink nothing twice.
    """

    def __init__(self, source: DataFrame, progress: Storage, on_batch: OnBatch) -> None:
        self._source = source
        self._progress = progress
        self._on_batch = on_batch
        self._failed: BaseException | None = None
        self._context = source.sparkSession.sparkContext
        self._tag = f"arrester-static-{uuid4().hex[:8]}"
        self._thread = InheritableThread(target=self._run, name="arrester-static", daemon=True)
        self._thread.start()

    @property
    def isActive(self) -> bool:
        """Whether the pass is at work."""
        return self._thread.is_alive()

    def awaitTermination(self) -> None:
        """Wait for the end of the pass, however it ends."""
        self._thread.join()

    def exception(self) -> BaseException | None:
        """What ended the pass before its time; None while it runs and when it is done."""
        return None if self.isActive else self._failed

    def stop(self) -> None:
        """Cancel the pass's Spark jobs and wait for its end."""
        while self.isActive:
            self._context.cancelJobsWithTag(self._tag)
            self._thread.join(0.2)

    def _run(self) -> None:
        try:
            if is_committed(self._progress, _ONLY):
                return
            self._context.addJobTag(self._tag)
            with suppress(FileExists):
                self._progress.create(f"offsets/{_ONLY}", b"static\n")
            self._on_batch(self._source, _ONLY)
            with suppress(FileExists):
                self._progress.create(f"commits/{_ONLY}", b"static\n")
        except BaseException as exc:
            self._failed = exc

"""The query of a run: Spark's streaming query, or one pass over a static DataFrame."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

import msgspec
from pyspark import InheritableThread
from pyspark.sql import DataFrame

from arrester.agents.definition.pipeline import Pipeline, Trigger
from arrester.agents.journal.storage import (
    CheckpointUnusable,
    FileExists,
    Storage,
    is_committed,
)
from arrester.agents.spark.foreach_batch import ForeachBatchQuery, OnBatch
from arrester.agents.spark.job_attempts import JobTag
from arrester.agents.spark.jvm.active_session import activate
from arrester.agents.spark.jvm.stores.hadoop_storage import storage
from arrester.agents.spark.query_progress import Progress
from arrester.agents.spark.sources.source_identity import SourceIdentity, identity_of

#: In the checkpoint of a static source: the progress that Spark stores for a streaming one.
BATCH_FOLDER = "arrester/batch"
_SPARK_FOLDERS = ("offsets", "commits", "sources")
#: A static source is one micro-batch.
_BATCH = 0
#: Created when the pass begins, with the identity of the source.
_OFFSETS = f"offsets/{_BATCH}"
#: What 0.2.0 wrote there, without an identity.
_NO_IDENTITY = b"static\n"


class Query(Protocol):
    """What a run needs of a query; the names are those of Spark's StreamingQuery."""

    @property
    def isActive(self) -> bool: ...

    @property
    def rows_per_second(self) -> float | None: ...

    def progress_after(self, last: Progress | None) -> list[Progress]:
        """Return the newer reports of Spark, oldest first."""
        ...

    def awaitTermination(self) -> object: ...

    def exception(self) -> BaseException | None: ...

    def stop(self) -> None: ...


def progress_of(pipeline: Pipeline, files: Storage) -> Storage:
    """Return the storage of the planned and committed micro-batches.

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


def check_source(pipeline: Pipeline, root: str, progress: Storage, *, adopt: bool) -> bool:
    """Return whether an earlier run has finished the pass over a static source.

    Raises CheckpointUnusable if the pass was begun over another source. With `adopt`, a finished
    pass is accepted for its held records although its source differs.
    """
    if pipeline.source.isStreaming:
        return False
    finished = is_committed(progress, _BATCH)
    begun = progress.read(_OFFSETS)
    if begun in (None, _NO_IDENTITY) or (finished and adopt):
        return finished
    earlier = msgspec.json.decode(begun, type=SourceIdentity)
    difference = earlier.difference(identity_of(pipeline.source))
    if difference is None:
        return finished
    remedy = (
        "Use a checkpoint per run for new input, or a streaming source. To process only the "
        "records that it holds, pass adopt=True"
        if finished
        else "Restore the source, or start again at a new checkpoint"
    )
    verb = "finished" if finished else "began"
    raise CheckpointUnusable(
        f"{root} is the checkpoint of a run that {verb} over another source: {difference}. {remedy}"
    )


def start_query(
    pipeline: Pipeline,
    checkpoint: str,
    progress: Storage,
    on_batch: OnBatch,
    trigger: Trigger | None,
) -> Query:
    """Start the query, which calls `on_batch`."""
    if not pipeline.source.isStreaming:
        return StaticQuery(pipeline.source, progress, on_batch)
    writer = pipeline.source.writeStream.option("checkpointLocation", checkpoint)
    return ForeachBatchQuery(writer.trigger(**trigger) if trigger else writer, on_batch)


class StaticQuery:
    """One pass over a static DataFrame, planned and committed as Spark does it for a stream.

    A checkpoint whose pass is committed has no further one: a rerun gives the sink nothing twice.
    """

    def __init__(self, source: DataFrame, progress: Storage, on_batch: OnBatch) -> None:
        self._source = source
        self._progress = progress
        self._on_batch = on_batch
        self._exception: BaseException | None = None
        self._jobs = JobTag(source.sparkSession)
        self._thread = InheritableThread(target=self._run, name="arrester-static", daemon=True)
        #: Unknown: Spark measures streams only.
        self.rows_per_second: float | None = None
        self._thread.start()

    @property
    def isActive(self) -> bool:
        return self._thread.is_alive()

    def progress_after(self, last: Progress | None) -> list[Progress]:
        return []

    def awaitTermination(self) -> None:
        self._thread.join()

    def exception(self) -> BaseException | None:
        """The exception that ended the pass; None while it runs and when it is done."""
        return None if self.isActive else self._exception

    def stop(self) -> None:
        """Cancel the pass's Spark jobs and wait for its end."""
        while self.isActive:
            self._jobs.cancel()
            self._thread.join(0.2)

    def _run(self) -> None:
        try:
            activate(self._source.sparkSession)
            if is_committed(self._progress, _BATCH):
                return
            with self._jobs.set():
                if not self._progress.exists(_OFFSETS):
                    identity = msgspec.json.encode(identity_of(self._source))
                    with suppress(FileExists):
                        self._progress.create(_OFFSETS, identity)
                self._on_batch(self._source, _BATCH)
                with suppress(FileExists):
                    self._progress.create(f"commits/{_BATCH}", b"static\n")
        except BaseException as exc:
            self._exception = exc

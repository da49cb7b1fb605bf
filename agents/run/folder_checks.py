"""Refuse folders of a run that would feed its own output back to it."""

from __future__ import annotations

from pyspark.sql import SparkSession

from arrester.agents.dead_letters.destinations import (
    DeadLettersUnusable,
    Destination,
    SparkDestination,
)
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.journal.storage import CheckpointUnusable
from arrester.agents.spark.sources.folders import folder_read_at, is_inside
from arrester.domain.errors import InvalidValue


def check_folders(pipeline: Pipeline, checkpoint: str, dead_letters: Destination | None) -> None:
    """Raise if a destination or the checkpoint is inside or around a folder that the source reads.

    Raise also if a destination is in the checkpoint.
    """
    spark, source = pipeline.source.sparkSession, pipeline.source
    output = pipeline.sink.store.folder
    folder = None if output is None else folder_read_at(source, output)
    if folder is not None:
        allowed = f"{_outside(folder)}: its rows would come back as records"
        raise InvalidValue("write_files: path", output, allowed)
    path = _path_of(dead_letters)
    folder = None if path is None else folder_read_at(source, path)
    if folder is not None:
        raise DeadLettersUnusable(
            f"errors.dlq.path={path!r}: dead letters would come back as records; choose "
            f"{_outside(folder)}"
        )
    folder = folder_read_at(source, checkpoint)
    if folder is not None and not is_inside(spark, folder, checkpoint):
        raise CheckpointUnusable(
            f"{checkpoint}: files of the checkpoint would be read as records; choose "
            f"{_outside(folder)}"
        )
    _check_outside_checkpoint(spark, checkpoint, output, path)


def _check_outside_checkpoint(
    spark: SparkSession, checkpoint: str, output: str | None, dead_letters: str | None
) -> None:
    """Raise InvalidValue if a destination is in the checkpoint."""
    for name, path in (("write_files: path", output), ("errors.dlq.path", dead_letters)):
        if path is not None and is_inside(spark, path, checkpoint):
            raise InvalidValue(name, path, f"a folder outside of the checkpoint {checkpoint}")


def _path_of(dead_letters: Destination | None) -> str | None:
    if not isinstance(dead_letters, SparkDestination):
        return None
    return dead_letters.path or dead_letters.options.get("path")


def _outside(folder: str) -> str:
    return f"a folder outside of {folder}, which the source reads, and not around it"

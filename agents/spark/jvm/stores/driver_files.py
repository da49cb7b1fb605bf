"""Files of rows on the driver, which it writes itself: a Spark job takes longer than they do."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame

from arrester.agents.spark.jvm.classes import jvm_class
from arrester.agents.spark.jvm.exceptions.java_inspector import java_inspector
from arrester.agents.spark.jvm.plans.catalyst import (
    analysed_plan,
    collected,
    frame_of,
    node_name,
    to_seq,
)
from arrester.agents.spark.jvm.stores.hadoop import delete_folder, rename

_HADOOP = "org.apache.hadoop.mapreduce"
_PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"
_DATA_SOURCES = "org.apache.spark.sql.execution.datasources"
#: Spark's writers of these formats.
_FORMATS: Final = {
    "json": f"{_DATA_SOURCES}.json.JsonFileFormat",
    "parquet": f"{_DATA_SOURCES}.parquet.ParquetFileFormat",
}
_OUTPUT_WRITER: Final = f"{_DATA_SOURCES}.OutputWriter"
_ROW: Final = "org.apache.spark.sql.catalyst.InternalRow"


def rows_on_driver(frame: DataFrame, format: str) -> DataFrame | None:
    """Return the rows of a frame if they are on the driver, and in a format that it writes."""
    plan = _local_plan(frame.sparkSession._jvm, analysed_plan(frame))
    if format not in _FORMATS or plan is None:
        return None
    return frame_of(frame.sparkSession, plan)


def _local_plan(jvm: Any, plan: Any) -> Any | None:
    """Return a plan over rows on the driver, without repartitioning: it would need a job."""
    name = node_name(plan)
    if name == "LocalRelation":
        return plan
    if name not in ("Project", "Repartition"):
        return None
    child = _local_plan(jvm, plan.child())
    if child is None or name == "Repartition":
        return child
    return plan.withNewChildren(to_seq(jvm, [child]))


def write_folder(
    frame: DataFrame, folder: str, *, format: str, options: Mapping[str, str] | None = None
) -> None:
    """Replace a folder by one with the rows of a frame in a file, as Spark's job writes them.

    The file appears when it is complete. `frame` is one of `rows_on_driver`. Raises exceptions of
    Hadoop.
    """
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    delete_folder(spark, folder)
    execution = frame._jdf.queryExecution()
    schema = execution.analyzed().schema()
    settings = jvm_class(jvm, _PYTHON_UTILS).toScalaMap(dict(options or {}))
    conf = session.sessionState().newHadoopConfWithOptions(settings)
    job = jvm_class(jvm, f"{_HADOOP}.Job").getInstance(conf)
    writers = jvm_class(jvm, _FORMATS[format])().prepareWrite(session, job, settings, schema)
    attempt = jvm_class(jvm, f"{_HADOOP}.TaskAttemptID")()
    contexts = jvm_class(jvm, f"{_HADOOP}.task.TaskAttemptContextImpl")
    context = contexts(job.getConfiguration(), attempt)
    name = f"part-00000-{uuid.uuid4()}{writers.getFileExtension(context)}"
    # Readers ignore names that begin with _.
    draft = f"{folder}/_{name}"
    writer = writers.newInstance(draft, schema, context)
    inspector = java_inspector(spark)
    write = inspector.consumer(writer, _OUTPUT_WRITER, "write", _ROW)
    try:
        inspector.map(collected(frame), write)
    finally:
        writer.close()
    rename(spark, draft, f"{folder}/{name}")

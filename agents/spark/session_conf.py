"""Temporary changes of a session's configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.session import session_id

#: With this setting, a crashing Python worker reports its stack.
FAULT_HANDLER: Final = {"spark.sql.execution.pyspark.udf.faulthandler.enabled": "true"}
#: The rows of a batch while a failing record is isolated.
SMALL: Final = 16
_ARROW_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
#: The batch size for functions whose rows are pickled.
_PICKLED_BATCH_ROWS = "spark.sql.execution.python.udf.maxRecordsPerBatch"
_DEFAULT_BATCH_ROWS = 10_000
_EXACT_PARQUET: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


@dataclass(slots=True)
class _ChangedSetting:
    """A temporarily changed setting; `before` None: it was not set."""

    before: str | None
    #: The values by requester. The newest one is in force.
    requested: dict[object, str] = field(default_factory=dict)


_changes_lock = Lock()
#: The changed settings, by session and name.
_changes: dict[tuple[str, str], _ChangedSetting] = {}


@contextmanager
def conf(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set some configuration inside the block.

    Several runs may share a session. The last requester of a setting restores it.
    """
    session, requester = session_id(spark), object()
    with _changes_lock:
        for name, value in values.items():
            unchanged = _ChangedSetting(spark.conf.get(name, None))
            setting = _changes.setdefault((session, name), unchanged)
            setting.requested[requester] = value
            spark.conf.set(name, value)
    try:
        yield
    finally:
        with _changes_lock:
            for name in values:
                _restore(spark, (session, name), requester)


def _restore(spark: SparkSession, key: tuple[str, str], requester: object) -> None:
    setting, (_, name) = _changes[key], key
    del setting.requested[requester]
    value = next(reversed(setting.requested.values()), setting.before)
    if not setting.requested:
        del _changes[key]
    if value is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, value)


def batch_rows(spark: SparkSession) -> int:
    """Return the largest number of rows in a batch, Spark's default if it is not limited."""
    rows = int(spark.conf.get(_ARROW_BATCH_ROWS, str(_DEFAULT_BATCH_ROWS)) or 0)
    return rows if rows > 0 else _DEFAULT_BATCH_ROWS


@contextmanager
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Pass small batches to Python in all plans made inside the block."""
    with conf(spark, {_ARROW_BATCH_ROWS: str(SMALL), _PICKLED_BATCH_ROWS: str(SMALL)}):
        yield


@contextmanager
def exact_parquet(spark: SparkSession) -> Iterator[None]:
    """Write all times to Parquet as they are inside the block.

    A session may cut them to milliseconds, or move or refuse those before 1900: 3.5 refuses them.
    """
    changed = {
        name: value
        for name, value in _EXACT_PARQUET.items()
        if str(spark.conf.get(name)).upper() != value
    }
    with conf(spark, changed):
        yield

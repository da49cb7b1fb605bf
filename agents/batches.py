"""In how many rows at once Spark feeds Python: fewer tell more exactly how far it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from pyspark.sql import SparkSession

#: So many rows at once while a record is searched.
SMALL: Final = 16
_ARROW = "spark.sql.execution.arrow.maxRecordsPerBatch"
#: Of functions whose rows are pickled.
_PICKLED = "spark.sql.execution.python.udf.maxRecordsPerBatch"
_USUAL = 10_000


def batch_rows(spark: SparkSession) -> int:
    """Return the rows of a batch at most, as far as their number is bound."""
    rows = int(spark.conf.get(_ARROW, str(_USUAL)) or _USUAL)
    return rows if rows > 0 else _USUAL


@contextmanager
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Feed Python a few rows at once in what is planned meanwhile."""
    with conf(spark, {_ARROW: str(SMALL), _PICKLED: str(SMALL)}):
        yield


@dataclass(slots=True)
class _Changed:
    """A setting of a session that is another one for a while; None before: it was not set."""

    before: str | None
    #: What it is to be, by who needs it so; the newest has it.
    wanted: dict[object, str] = field(default_factory=dict)


_changing = Lock()
_changed: dict[tuple[str, str], _Changed] = {}


@contextmanager
def conf(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set some of a session's configuration; when nobody needs it otherwise it is as before.

    Several runs may share a session.
    """
    jvm_session: Any = spark._jsparkSession
    session, who = str(jvm_session.sessionUUID()), object()
    with _changing:
        for name, value in values.items():
            changed = _changed.setdefault((session, name), _Changed(spark.conf.get(name, None)))
            changed.wanted[who] = value
            spark.conf.set(name, value)
    try:
        yield
    finally:
        with _changing:
            for name in values:
                _give_up(spark, (session, name), who)


def _give_up(spark: SparkSession, which: tuple[str, str], who: object) -> None:
    changed, (_, name) = _changed[which], which
    del changed.wanted[who]
    now = next(reversed(changed.wanted.values()), changed.before)
    if not changed.wanted:
        del _changed[which]
    if now is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, now)

"""Temporary changes of a session's configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from pyspark.sql import SparkSession

#: A crashing Python worker then reports its stack.
FAULT_HANDLER: Final = {"spark.sql.execution.pyspark.udf.faulthandler.enabled": "true"}


@dataclass(slots=True)
class _Changed:
    """A temporarily changed setting; `before` None: it was not set."""

    before: str | None
    #: The values by requester. The newest one is in force.
    wanted: dict[object, str] = field(default_factory=dict)


_changing = Lock()
_changed: dict[tuple[str, str], _Changed] = {}


@contextmanager
def conf(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set some configuration inside the block. The last of several users restores it.

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

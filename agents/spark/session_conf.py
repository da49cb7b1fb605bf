"""The configuration of a session, some of which is another one for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from pyspark.sql import SparkSession

#: With this a Python worker that crashes says what it was at.
SAYS_CRASHES: Final = {"spark.sql.execution.pyspark.udf.faulthandler.enabled": "true"}


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

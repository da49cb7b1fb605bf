"""A session's configuration: temporary changes, and what Arrow carries to Python functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.utils import (
    require_minimum_pandas_version,
    require_minimum_pyarrow_version,
)

from arrester.agents.config import Given, Source
from arrester.agents.spark.jvm import jvm_class
from arrester.agents.worker.arrow_types import arrow_schema
from arrester.controlplane.domain.errors import InvalidValue

#: The keys of Spark's configuration that are settings of the agent.
_PREFIX: Final = "spark.arrester."
_FILE: Final = "config.file"
#: A crashing Python worker then reports its stack.
FAULT_HANDLER: Final = {"spark.sql.execution.pyspark.udf.faulthandler.enabled": "true"}
#: The batch size while a failing record is searched.
SMALL: Final = 16
_ARROW = "spark.sql.execution.arrow.maxRecordsPerBatch"
#: For functions whose rows are pickled.
_PICKLED = "spark.sql.execution.python.udf.maxRecordsPerBatch"
_DEFAULT = 10_000


@dataclass(slots=True)
class _Changed:
    """A temporarily changed setting; `before` None: it was not set."""

    before: str | None
    #: The values by requester. The newest one is in force.
    requested: dict[object, str] = field(default_factory=dict)


_changing = Lock()
_changed: dict[tuple[str, str], _Changed] = {}


@contextmanager
def conf(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set some configuration inside the block. The last of several users restores it.

    Several runs may share a session.
    """
    jvm_session: Any = spark._jsparkSession
    session, requester = str(jvm_session.sessionUUID()), object()
    with _changing:
        for name, value in values.items():
            changed = _changed.setdefault((session, name), _Changed(spark.conf.get(name, None)))
            changed.requested[requester] = value
            spark.conf.set(name, value)
    try:
        yield
    finally:
        with _changing:
            for name in values:
                _restore(spark, (session, name), requester)


def _restore(spark: SparkSession, key: tuple[str, str], requester: object) -> None:
    changed, (_, name) = _changed[key], key
    del changed.requested[requester]
    value = next(reversed(changed.requested.values()), changed.before)
    if not changed.requested:
        del _changed[key]
    if value is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, value)


def batch_rows(spark: SparkSession) -> int:
    """Return the largest number of rows in a batch, if it is limited."""
    rows = int(spark.conf.get(_ARROW, str(_DEFAULT)) or _DEFAULT)
    return rows if rows > 0 else _DEFAULT


@contextmanager
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Give Python small batches in everything that is planned inside the block."""
    with conf(spark, {_ARROW: str(SMALL), _PICKLED: str(SMALL)}):
        yield


def agent_settings(spark: SparkSession) -> list[Source]:
    """Return the agent's settings in Spark's configuration, then those of the file it names.

    Raises InvalidValue if the file cannot be read.
    """
    conf = {
        name.removeprefix(_PREFIX): Given(value, name)
        for name, value in spark.sparkContext.getConf().getAll()
        if name.startswith(_PREFIX)
    }
    file = conf.pop(_FILE, None)
    return [conf] if file is None else [conf, _properties(spark, file)]


def _properties(spark: SparkSession, file: Given) -> Source:
    """Return a file of Java properties, the syntax of Kafka Connect, in UTF-8."""
    jvm: Any = spark._jvm
    properties = jvm_class(jvm, "java.util.Properties")()
    try:
        text = Path(file.value).read_text("utf-8")
        properties.load(jvm_class(jvm, "java.io.StringReader")(text))
    # A wrong escape is an IllegalArgumentException of Java.
    except (OSError, UnicodeError, PySparkException) as exc:
        allowed = f"the path of a properties file in UTF-8 that the driver can read ({exc})"
        raise InvalidValue(_PREFIX + _FILE, file.value, allowed) from None
    return {
        str(name): Given(str(properties.getProperty(name)), file.value)
        for name in properties.stringPropertyNames()
    }


def require_packages() -> None:
    """Raise ImportError if the driver lacks the packages that PySpark needs for Python
    functions."""
    require_minimum_pandas_version()
    require_minimum_pyarrow_version()


def can_carry(kind: T.DataType) -> bool:
    """Whether Arrow carries values of this type to Python and back."""
    try:
        arrow_schema(T.StructType([T.StructField("value", kind)]), timezone="UTC")
    except PySparkException:
        return False
    return True

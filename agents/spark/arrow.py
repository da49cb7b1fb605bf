"""Rows between Spark and Python: batch sizes, required packages, types that Arrow carries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.pandas.utils import (
    require_minimum_pandas_version,
    require_minimum_pyarrow_version,
)

from arrester.agents.spark.session_conf import conf

#: The batch size while a failing record is searched.
SMALL: Final = 16
_ARROW = "spark.sql.execution.arrow.maxRecordsPerBatch"
#: For functions whose rows are pickled.
_PICKLED = "spark.sql.execution.python.udf.maxRecordsPerBatch"
_USUAL = 10_000


def batch_rows(spark: SparkSession) -> int:
    """Return the largest number of rows in a batch, if it is limited."""
    rows = int(spark.conf.get(_ARROW, str(_USUAL)) or _USUAL)
    return rows if rows > 0 else _USUAL


@contextmanager
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Give Python small batches in everything that is planned inside the block."""
    with conf(spark, {_ARROW: str(SMALL), _PICKLED: str(SMALL)}):
        yield


def require_packages() -> None:
    """Raise ImportError if the driver lacks the packages that PySpark needs for Python
    functions."""
    require_minimum_pandas_version()
    require_minimum_pyarrow_version()


def can_carry(kind: T.DataType) -> bool:
    """Whether Arrow carries values of this type to Python and back."""
    try:
        to_arrow_type(kind, timezone="UTC")
    except PySparkException:
        return False
    return True

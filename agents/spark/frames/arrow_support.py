"""What PySpark needs to pass rows to Python functions by Arrow."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import types as T
from pyspark.sql.pandas.utils import (
    require_minimum_pandas_version,
    require_minimum_pyarrow_version,
)

from arrester.agents.worker.arrow_types import arrow_schema


def require_packages() -> None:
    """Raise ImportError if the driver lacks packages that PySpark needs for Python functions."""
    require_minimum_pandas_version()
    require_minimum_pyarrow_version()


def can_carry(kind: T.DataType) -> bool:
    """Whether Arrow carries values of this type to Python and back."""
    try:
        arrow_schema(T.StructType([T.StructField("value", kind)]), timezone="UTC")
    except PySparkException:
        return False
    return True

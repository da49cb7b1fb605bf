"""The time zone of a session, with a name that Python knows."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.classes import jvm_class
from arrester.domain.errors import InvalidValue

_SETTING: Final = "spark.sql.session.timeZone"
_DATE_TIME_UTILS = "org.apache.spark.sql.catalyst.util.DateTimeUtils"


def session_zone(spark: SparkSession) -> str:
    """Return the name of the session's time zone in Spark."""
    return str(spark.conf.get(_SETTING))


def python_zone(spark: SparkSession) -> str:
    """Return the name of the same zone in Python: Java makes zones such as `UTC+01:00` and `Z`.

    Raises InvalidValue if Python has no such zone.
    """
    return _python_zone(spark._jvm, session_zone(spark))


@lru_cache(maxsize=16)
def _python_zone(jvm: Any, name: str) -> str:
    if _is_known(name):
        return name
    in_java = str(jvm_class(jvm, _DATE_TIME_UTILS).getZoneId(name).normalized().getId())
    found = "UTC" if in_java == "Z" else in_java
    if not _is_known(found):
        raise InvalidValue(
            _SETTING, name, "a zone that Python knows, such as Europe/Berlin, UTC or +01:00"
        )
    return found


def _is_known(name: str) -> bool:
    # Not every driver has PyArrow: only Python steps need it.
    import pyarrow as pa

    try:
        pa.lib.string_to_tzinfo(name)
    except Exception:  # of pytz, zoneinfo or pyarrow
        return False
    return True

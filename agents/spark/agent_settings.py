"""The agent's settings in Spark's configuration and in the file that it names."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from arrester.agents.config import ExternalSetting, SettingSource
from arrester.agents.spark.jvm.java_text import java_properties
from arrester.domain.errors import InvalidValue

#: How the keys of Spark's configuration begin that are settings of the agent.
_PREFIX: Final = "spark.arrester."
_FILE: Final = "config.file"


def agent_settings(spark: SparkSession) -> list[SettingSource]:
    """Return the agent's settings in Spark's configuration, then those of the file it names.

    Raises InvalidValue if the file cannot be read.
    """
    settings = {
        name.removeprefix(_PREFIX): ExternalSetting(value, name)
        for name, value in spark.sparkContext.getConf().getAll()
        if name.startswith(_PREFIX)
    }
    file = settings.pop(_FILE, None)
    return [settings] if file is None else [settings, _settings_in_file(spark, file)]


def _settings_in_file(spark: SparkSession, file: ExternalSetting) -> SettingSource:
    """Return the settings in a file of Java properties, the syntax of Kafka Connect, in UTF-8."""
    try:
        properties = java_properties(spark, Path(file.value).read_text("utf-8"))
    # An invalid escape is an IllegalArgumentException of Java.
    except (OSError, UnicodeError, PySparkException) as exc:
        allowed = f"the path of a properties file in UTF-8 that the driver can read ({exc})"
        raise InvalidValue(_PREFIX + _FILE, file.value, allowed) from None
    return {name: ExternalSetting(value, file.value) for name, value in properties.items()}

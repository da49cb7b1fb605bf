"""Texts that Java parses: regular expressions and properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.classes import jvm_class


def matches_regex(spark: SparkSession, pattern: str, text: str) -> bool:
    """Whether a regular expression matches a complete text.

    Raises IllegalArgumentException for an invalid expression.
    """
    jvm: Any = spark._jvm
    return bool(jvm_class(jvm, "java.util.regex.Pattern").matches(pattern, text))


def java_properties(spark: SparkSession, text: str) -> Mapping[str, str]:
    """Return the properties in the text of a properties file.

    Raises IllegalArgumentException for an invalid escape.
    """
    jvm: Any = spark._jvm
    properties = jvm_class(jvm, "java.util.Properties")()
    properties.load(jvm_class(jvm, "java.io.StringReader")(text))
    return {
        str(name): str(properties.getProperty(name)) for name in properties.stringPropertyNames()
    }

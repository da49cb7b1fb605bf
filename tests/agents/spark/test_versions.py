"""Which versions of Spark the agent runs on."""

from __future__ import annotations

import ast
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from arrester.agents.spark import versions
from arrester.agents.spark.versions import (
    SparkRefused,
    missing_names,
    require_supported,
)
from tests.services import REPOSITORY

pytestmark = pytest.mark.spark
ANSI = "spark.sql.ansi.enabled"


def session_of(spark: SparkSession, version: str, *, without: str | None = None) -> Any:
    """Return a session that reports another version, of a JVM that may lack a class."""
    jvm: Any = spark._jvm
    real = jvm.java.lang

    def for_name(name: str, initialize: bool, loader: Any) -> Any:
        if name == without:
            raise LookupError(name)
        return real.Class.forName(name, initialize, loader)

    lang = SimpleNamespace(Thread=real.Thread, Class=SimpleNamespace(forName=for_name))
    return SimpleNamespace(
        _jvm=Jvm(java=SimpleNamespace(lang=lang)),
        _jsparkSession=spark._jsparkSession,
        version=version,
    )


class Jvm:
    """The part of a JVM that is asked for classes."""

    def __init__(self, java: Any) -> None:
        self.java = java


def is_before_4(spark: SparkSession) -> bool:
    return spark.version.startswith("3.")


@pytest.mark.smoke
def test_the_session_of_these_tests_is_supported(spark: SparkSession) -> None:
    require_supported(spark)
    if not is_before_4(spark):
        assert missing_names(spark._jvm) == []


@pytest.mark.parametrize("version", ["2.4.8", "3.4.4"])
def test_an_older_version_is_refused_in_one_line(spark: SparkSession, version: str) -> None:
    with pytest.raises(SparkRefused) as caught:
        require_supported(session_of(spark, version))
    assert str(caught.value) == f"Arrester needs Spark 3.5 or newer; this is {version}"


def test_an_unknown_newer_version_runs_if_it_has_what_the_agent_uses(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    if is_before_4(spark):
        pytest.skip("the names are those of Spark 4")
    with caplog.at_level(logging.WARNING, "arrester"):
        require_supported(session_of(spark, "4.99.0"))
    [line] = caplog.messages
    assert line.startswith("Spark 4.99.0 is newer than the tested versions (3.5 to 4.3)")


@pytest.mark.parametrize("version", ["4.99.0", "5.0.0", "of-a-vendor"])
def test_a_missing_private_name_is_refused_in_one_line(spark: SparkSession, version: str) -> None:
    name = "org.apache.spark.sql.catalyst.expressions.TryEval"
    with pytest.raises(SparkRefused) as caught:
        require_supported(session_of(spark, version, without=name))
    assert f"Arrester does not run on Spark {version}: it lacks " in str(caught.value)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_spark_3_needs_a_decision_about_invalid_casts(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.unset(ANSI)
    if is_before_4(spark):
        with pytest.raises(SparkRefused, match=f"set {ANSI} to true"):
            require_supported(session)
        session.conf.set(ANSI, "false")
    require_supported(session)


def test_each_class_of_spark_that_is_named_is_checked() -> None:
    checked = {name.rpartition(".")[2] for name in versions._JVM}
    named = {
        name
        for module in (REPOSITORY / "agents/spark").glob("*.py")
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Attribute) and (name := _class_of_spark(node)) is not None
    }
    # The Column of Spark 3.5.
    assert named - checked == {"Column"}


#: The names by which modules of agents/spark call a package of Spark's.
_PACKAGES = {"sql", "catalyst", "types"}


def _class_of_spark(node: ast.Attribute) -> str | None:
    """Return the class that an expression like `jvm.org.apache.spark.SparkThrowable` names."""
    if not node.attr[:1].isupper():
        return None
    path: list[str] = []
    below: ast.expr = node.value
    while isinstance(below, ast.Attribute):
        path.append(below.attr)
        below = below.value
    if not isinstance(below, ast.Name) or any(part[:1].isupper() for part in path):
        return None
    root = [*path, below.id][-1]
    is_spark = "spark" in path if root == "jvm" else root in _PACKAGES
    return node.attr if is_spark else None

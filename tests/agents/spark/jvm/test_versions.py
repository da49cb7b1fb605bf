"""Which versions of Spark the agent runs on."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from arrester.agents.spark.jvm import versions
from arrester.agents.spark.jvm.versions import (
    SparkRefused,
    missing_names,
    require_supported,
)
from tests.services import REPOSITORY

pytestmark = pytest.mark.spark
ANSI = "spark.sql.ansi.enabled"


def session_of(spark: SparkSession, version: str) -> Any:
    """Return a session that reports another version."""
    return SimpleNamespace(
        _jvm=Jvm(spark._jvm), _jsparkSession=spark._jsparkSession, version=version
    )


class Jvm:
    """The view of a JVM; not equal to an earlier one, whose checks are cached."""

    def __init__(self, jvm: Any) -> None:
        self._gateway_client = jvm._gateway_client


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
def test_a_missing_private_name_is_refused_in_one_line(
    spark: SparkSession, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "org.apache.spark.sql.catalyst.expressions.OfAnotherVersion"
    # Each other name is looked up in the tests above, which takes seconds.
    monkeypatch.setattr(versions, "_JVM", {versions.DATASET: ("ofRows",), name: ()})
    with pytest.raises(SparkRefused) as caught:
        require_supported(session_of(spark, version))
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
    named = {
        name
        for path in (REPOSITORY / "agents/spark").rglob("*.py")
        for name in _classes_of_spark(path)
    }
    # Delta Lake is no part of Spark.
    others = {name for name in named if not name.startswith("org.apache.spark.sql.delta.")}
    of_spark_3 = {f"org.apache.spark.sql.{name}" for name in ("Column", "Dataset", "SparkSession")}
    assert others - set(versions._JVM) == of_spark_3


def _classes_of_spark(path: Path) -> Iterator[str]:
    """Yield Spark's classes among the arguments of `jvm_class`, which the module's constants
    make."""
    module = import_module(
        ".".join(("arrester", *path.relative_to(REPOSITORY).with_suffix("").parts))
    )
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "jvm_class":
            for part in ast.walk(node.args[1]):
                if isinstance(part, ast.Constant | ast.JoinedStr | ast.Name):
                    with suppress(NameError):  # a parameter
                        name = eval(ast.unparse(part), vars(module))
                        if re.match(r"org\.apache\.spark\.[a-z0-9.]*[A-Z]", str(name)):
                            yield str(name).removesuffix("$")

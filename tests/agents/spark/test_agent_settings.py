"""The agent's settings in Spark's configuration, and in the file that it names."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from arrester.agents.spark.agent_settings import agent_settings
from arrester.domain.errors import InvalidValue

pytestmark = pytest.mark.spark


def configured(spark: SparkSession, **settings: str) -> Any:
    """Return a session with some configuration; that of a running one cannot be changed."""
    pairs = [(f"spark.{name.replace('__', '.')}", value) for name, value in settings.items()]
    context = SimpleNamespace(getConf=lambda: SimpleNamespace(getAll=lambda: pairs))
    return SimpleNamespace(sparkContext=context, _jvm=spark._jvm)


def test_settings_of_sparks_configuration_precede_those_of_its_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "arrester.properties"
    file.write_text(
        "# as in Kafka Connect\n"
        "errors.tolerance = all\n"
        "errors.redact: pin, \\\n    \\u0434\n"
        "errors.dlq.path /data/Öre\n",
        encoding="utf-8",
    )
    settings = {"app__name": "x", "arrester__errors__tolerance": "none"}
    session = configured(spark, **settings, arrester__config__file=str(file))
    conf, of_file = agent_settings(session)
    assert conf == {"errors.tolerance": ("none", "spark.arrester.errors.tolerance")}
    assert of_file == {
        "errors.tolerance": ("all", str(file)),
        "errors.redact": ("pin, д", str(file)),
        "errors.dlq.path": ("/data/Öre", str(file)),
    }
    assert agent_settings(configured(spark, app__name="x")) == [{}]


@pytest.mark.parametrize("text", [None, "errors.redact=\\u12"])
def test_a_file_that_cannot_be_read_is_refused(
    spark: SparkSession, tmp_path: Path, text: str | None
) -> None:
    file = tmp_path / "arrester.properties"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InvalidValue) as caught:
        agent_settings(configured(spark, arrester__config__file=str(file)))
    assert caught.value.name == "spark.arrester.config.file"
    assert caught.value.value == str(file)
    why = "No such file" if text is None else "Malformed"
    assert why in caught.value.allowed

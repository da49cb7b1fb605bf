"""The files of the Helm chart, without helm: `make helm` renders them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from arrester import __version__
from tests.deploy.chart import (
    CHART,
    ELSEWHERE,
    HOW_TO,
    SCHEMA,
    VALUES,
    documented_variables,
    is_setting,
)
from tests.services import REPOSITORY


def secret_keys() -> set[str]:
    """Return the variables that the templates take from the Secret."""
    text = (CHART / "templates" / "_helpers.tpl").read_text()
    names = re.findall(r'"((?:MIGRATE_)?DATABASE_URL|REDIS_URL|(?:ARRESTER|OTEL)_[A-Z_]+)"', text)
    return {each for each in names if not is_setting(each)}


def merged(values: Any, others: Any) -> Any:
    """Return values with others above them, as Helm merges files."""
    if not (isinstance(values, dict) and isinstance(others, dict)):
        return others
    return values | {key: merged(values.get(key), other) for key, other in others.items()}


def test_the_chart_has_the_version_of_the_product() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


@pytest.mark.parametrize("name", ["postgres-roles.sh", "redis.sh"])
def test_the_scripts_of_the_chart_are_those_of_the_containers(name: str) -> None:
    assert (CHART / "files" / name).resolve() == (REPOSITORY / "docker" / name).resolve()


def test_the_bundled_servers_have_the_images_of_compose() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    services = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]
    for name in ("postgres", "redis"):
        assert values[name]["image"] in services[name]["image"]


@pytest.mark.parametrize("path", VALUES, ids=lambda path: path.stem)
def test_the_schema_accepts_the_values(path: Path) -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    values = merged(defaults, yaml.safe_load(path.read_text()))
    jsonschema.Draft7Validator(SCHEMA).validate(values)


def test_the_schema_knows_each_value_and_no_other() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    # Helm adds the values of a chart above.
    assert set(defaults) == set(SCHEMA["properties"]) - {"global"}
    assert not jsonschema.Draft7Validator(SCHEMA).is_valid(defaults), "existingSecret is required"


def test_each_documented_variable_is_a_setting_or_a_key_of_the_secret() -> None:
    documented = documented_variables() - ELSEWHERE
    assert len(documented) > 25
    assert documented == {each for each in documented if is_setting(each)} | (
        documented & secret_keys()
    )
    assert not secret_keys() & {each for each in documented if is_setting(each)}


@pytest.mark.parametrize(
    "name",
    [
        "DATABASE_URL",
        "REDIS_URL",
        "ARRESTER_BROKER_URL",
        "ARRESTER_SECRET_KEY",
        "ARRESTER_OLD_SECRET_KEYS",
        "ARRESTER_ADMIN_PASSWORD",
        "ARRESTER_OIDC_CLIENT_SECRET",
        "ARRESTER_SMTP_URL",
        "ARRESTER_DEAD_LETTERS_KAFKA",
        "OTEL_EXPORTER_OTLP_HEADERS",
        *ELSEWHERE,
    ],
)
def test_no_setting_has_a_secret(name: str) -> None:
    assert not is_setting(name)


def test_the_schema_accepts_the_values_of_the_how_to() -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```", HOW_TO.read_text(), re.DOTALL | re.MULTILINE)
    parts = [
        part for each in blocks if set(part := yaml.safe_load(each)) <= set(SCHEMA["properties"])
    ]
    assert len(parts) == 3
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for part in parts:
        values = merged(values, part)
        jsonschema.Draft7Validator(SCHEMA).validate(values)

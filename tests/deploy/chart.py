"""The Helm chart, rendered, and what Kubernetes makes of its containers."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from tests.services import REPOSITORY

CHART = REPOSITORY / "deploy" / "helm" / "arrester"
HOW_TO = REPOSITORY / "docs" / "how-to" / "deploy" / "kubernetes.md"
#: Value files that together use each value.
EXTERNAL, BUNDLED, EVERYTHING = (
    CHART / "ci" / f"{name}-values.yaml" for name in ("external", "bundled", "everything")
)
VALUES = (EXTERNAL, BUNDLED, EVERYTHING)
RELEASE, NAMESPACE = "arrester", "observability"

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
#: Variables for embedded servers and development, which no pod has.
ELSEWHERE = {"ARRESTER_HOME", "ARRESTER_PORT", "ARRESTER_DEBUG"}
#: The Secret of the how-to, with other texts.
SECRET = {
    "ARRESTER_SECRET_KEY": "only for tests, and long enough to be accepted",
    "ARRESTER_ADMIN_PASSWORD": "admin-secret",
    "ARRESTER_OPERATOR_PASSWORD": "operator-secret",
    "ARRESTER_VIEWER_PASSWORD": "viewer-secret",
    "POSTGRES_PASSWORD": "postgres-secret",
    "ARRESTER_OWNER_PASSWORD": "owner-secret",
    "ARRESTER_APP_PASSWORD": "app-secret",
    "REDIS_PASSWORD": "redis-secret",
    "REDIS_BROKER_PASSWORD": "broker-secret",
}
#: Its keys with external servers.
URLS = ("DATABASE_URL", "MIGRATE_DATABASE_URL", "REDIS_URL", "ARRESTER_BROKER_URL")

Manifest = dict[str, Any]


def documented_variables() -> set[str]:
    """Return the variables in the table of the reference."""
    text = (REPOSITORY / "docs" / "reference" / "server.md").read_text()
    table = text.partition("| variable | default")[2].partition("\n\n")[0]
    return set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))


def is_setting(name: str) -> bool:
    """Return whether the schema accepts a variable in `settings`."""
    validator = jsonschema.Draft7Validator(SCHEMA["properties"]["settings"])
    return bool(validator.is_valid({name: "text"}))


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run helm with arguments; `make helm` sets its path."""
    return subprocess.run(
        [os.environ["HELM"], *arguments], capture_output=True, text=True, check=False
    )


@cache
def rendered(values: Path, *options: str) -> Sequence[Manifest]:
    """Return the manifests of the chart with a value file and further options of helm."""
    done = helm("template", RELEASE, CHART, "--namespace", NAMESPACE, "--values", values, *options)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def refusal(*options: str) -> str:
    """Return why helm refuses the least values with more options."""
    done = helm("template", RELEASE, CHART, "--values", EXTERNAL, *options)
    assert done.returncode != 0, options
    return done.stderr


def of_kind(manifests: Sequence[Manifest], kind: str) -> dict[str, Manifest]:
    """Return the manifests of a kind by the process that they are for."""
    return {process(each): each for each in manifests if each["kind"] == kind}


def process(manifest: Manifest) -> str:
    return str(manifest["metadata"]["labels"]["app.kubernetes.io/component"])


def pods(manifests: Sequence[Manifest]) -> dict[str, Manifest]:
    """Return the templates of all pods by process."""
    return {
        process(each): each["spec"]["template"]
        for each in manifests
        if "template" in each.get("spec", {})
    }


def containers(pod: Manifest) -> Iterator[Manifest]:
    """Yield all containers of a pod."""
    yield from pod["spec"].get("initContainers", ())
    yield from pod["spec"]["containers"]


def main_container(pod: Manifest) -> Manifest:
    [found] = pod["spec"]["containers"]
    return dict(found)


def environment(container: Manifest, secret: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a container as Kubernetes sets them, with the keys of its Secret."""
    found: dict[str, str] = {}
    for each in container["env"]:
        if "valueFrom" not in each:
            # A reference to an unknown variable stays as it is.
            found[each["name"]] = re.sub(
                r"\$\((\w+)\)", lambda name: found.get(name[1], name[0]), each["value"]
            )
            continue
        [(source, reference)] = each["valueFrom"].items()
        assert source == "secretKeyRef"
        if reference["key"] in secret:
            found[each["name"]] = secret[reference["key"]]
        else:
            assert reference.get("optional"), f"the Secret has no key {reference['key']}"
    return found


def selects(selector: Manifest, pod: Manifest) -> bool:
    """Return whether a label selector selects a pod."""
    labels = pod["metadata"]["labels"]
    expressions = selector.get("matchExpressions", ())
    assert all(each["operator"] == "In" for each in expressions)
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(each["key"]) in each["values"] for each in expressions
    )

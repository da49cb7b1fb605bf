"""The manifests of the how-to for Spark on Kubernetes agree with each other and with the agent."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from arrester.agents.config import AgentConfig
from arrester.agents.runtime.end.shutdown import GRACE_SECONDS
from arrester.agents.transport.connection import FLUSH_SECONDS
from tests.deploy.chart import Manifest
from tests.services import REPOSITORY

PAGE = (REPOSITORY / "docs" / "how-to" / "deploy" / "spark-on-kubernetes.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
POD, APPLICATION = (yaml.safe_load(text) for kind, text in BLOCKS if kind == "yaml")
COMMANDS = "".join(text for kind, text in BLOCKS if kind == "sh")
#: Spark and the JVM stop after the agent.
END_OF_SPARK_SECONDS = 10


def container() -> Manifest:
    [found] = POD["spec"]["containers"]
    return dict(found)


def config() -> AgentConfig:
    return AgentConfig.read("flights", {})


def test_the_operator_gets_the_pod_of_the_template() -> None:
    assert (POD["apiVersion"], POD["kind"]) == ("v1", "Pod")
    assert APPLICATION["apiVersion"] == "sparkoperator.k8s.io/v1beta2"
    assert APPLICATION["kind"] == "SparkApplication"
    assert APPLICATION["spec"]["driver"]["template"]["spec"] == POD["spec"]
    # Spark looks for the container of this name.
    assert container()["name"] == "spark-kubernetes-driver"


def test_the_grace_period_is_longer_than_the_end_of_an_agent() -> None:
    longest = config().shutdown_timeout_seconds + GRACE_SECONDS + FLUSH_SECONDS
    assert f"({config().shutdown_timeout_seconds:.0f} s) and 15 seconds" in PAGE
    assert POD["spec"]["terminationGracePeriodSeconds"] >= longest + END_OF_SPARK_SECONDS


def test_the_spool_is_on_a_volume_that_is_larger() -> None:
    [variable] = container()["env"]
    [mount] = container()["volumeMounts"]
    [volume] = POD["spec"]["volumes"]
    assert variable == {"name": "ARRESTER_SPOOL", "value": mount["mountPath"]}
    assert mount["name"] == volume["name"]
    gigabytes = re.fullmatch(r"(\d+)Gi", volume["emptyDir"]["sizeLimit"])
    assert gigabytes is not None and int(gigabytes[1]) * 2**30 > config().errors.spool_bytes


def test_the_commands_name_the_objects_of_the_manifests() -> None:
    [secret] = [each["secretRef"]["name"] for each in container()["envFrom"]]
    assert f"secret generic {secret} " in COMMANDS
    assert set(re.findall(r"--from-literal=(\w+)=", COMMANDS)) == {
        "REDIS_URL",
        "ARRESTER_SERVER_KEY",
    }
    spec: dict[str, Any] = APPLICATION["spec"]
    namespace, name = (APPLICATION["metadata"][each] for each in ("namespace", "name"))
    assert set(re.findall(r"--namespace (\S+)", COMMANDS)) == {namespace, "spark-operator"}
    assert f"container.image={spec['image']} " in COMMANDS
    assert f"docker build --tag {spec['image']} ." in COMMANDS
    assert f"    {spec['mainApplicationFile']}\n" in COMMANDS
    assert f"sparkoperator.k8s.io/app-name={name}" in COMMANDS
    [dockerfile] = [text for kind, text in BLOCKS if kind == "dockerfile"]
    assert f"FROM apache/spark:{spec['sparkVersion']}-python3\n" in dockerfile
    assert "COPY pipeline.py /app/" in dockerfile


@pytest.mark.helm
@pytest.mark.parametrize("age", [0, 1, 2])
def test_the_template_follows_the_schemas_of_kubernetes(age: int) -> None:
    import kubernetes_validate
    from kubernetes_validate.utils import all_versions

    version = all_versions()[-1 - age]
    pod = POD | {"metadata": {"name": "driver"}}
    kubernetes_validate.validate(pod, version, strict=True)
    pod["spec"] = POD["spec"] | {"terminationGracePeriod": 90}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, version, strict=True)

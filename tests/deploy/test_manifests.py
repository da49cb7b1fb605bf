"""What the Helm chart declares is valid, and is what docker-compose.yml declares."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.chart import (
    BUNDLED,
    CHART,
    ELSEWHERE,
    EVERYTHING,
    EXTERNAL,
    HOW_TO,
    SECRET,
    URLS,
    VALUES,
    Manifest,
    containers,
    documented_variables,
    environment,
    helm,
    is_setting,
    main_container,
    of_kind,
    pods,
    refusal,
    rendered,
    selects,
)
from tests.services import REPOSITORY

pytestmark = pytest.mark.helm

SERVER = ("web", "worker", "wake", "housekeeper")
SERVICES: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())[
    "services"
]
each_file = pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)


@each_file
def test_helm_finds_no_fault(values: Path) -> None:
    done = helm("lint", CHART, "--strict", "--values", values)
    assert done.returncode == 0, done.stdout + done.stderr


@each_file
def test_the_notes_after_an_installation_have_the_next_command(values: Path) -> None:
    done = helm("install", "arrester", CHART, "--values", values, "--dry-run=client")
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    assert "kubectl --namespace default logs --selector" in notes
    address = "https://arrester.example" if values == EVERYTHING else "http://127.0.0.1:8000"
    assert address in notes


@each_file
@pytest.mark.parametrize("age", [0, 1, 2])
def test_manifests_follow_the_schemas_of_kubernetes(values: Path, age: int) -> None:
    import kubernetes_validate
    from kubernetes_validate.utils import all_versions

    version = all_versions()[-1 - age]
    for each in rendered(values):
        kubernetes_validate.validate(each, version, strict=True)
    broken = {**rendered(values)[0], "specification": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


@each_file
def test_no_two_objects_have_one_name(values: Path) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in rendered(values)]
    assert len(names) == len(set(names))
    assert {each["metadata"]["namespace"] for each in rendered(values)} == {"observability"}


def test_the_chart_declares_the_processes_of_compose() -> None:
    assert set(pods(rendered(EVERYTHING))) == set(SERVICES) - {"demo"}
    assert set(pods(rendered(EXTERNAL))) == {*SERVER, "migrate"}


@pytest.mark.parametrize("process", [*SERVER, "migrate"])
def test_processes_have_the_commands_of_compose(process: str) -> None:
    declared = main_container(pods(rendered(EXTERNAL))[process])
    assert declared["command"] == SERVICES[process]["command"]
    assert "args" not in declared


@pytest.mark.parametrize("process", ["worker", "housekeeper"])
def test_workers_are_checked_as_by_compose(process: str) -> None:
    declared = main_container(pods(rendered(EXTERNAL))[process])
    kind, command = SERVICES[process]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    probe = declared["readinessProbe"]
    assert probe["exec"]["command"] == ["sh", "-c", command.replace("$$", "$")]
    # Without Redis none of them answers: a restart would only delay them.
    assert "livenessProbe" not in declared


def test_web_has_the_probes_of_the_server() -> None:
    declared = main_container(pods(rendered(EXTERNAL))["web"])
    paths = {
        name: declared[f"{name}Probe"]["httpGet"]["path"]
        for name in ("startup", "liveness", "readiness")
    }
    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert all(declared[f"{name}Probe"]["timeoutSeconds"] > 1 for name in paths)


@pytest.mark.parametrize("server", ["postgres", "redis"])
def test_bundled_servers_are_those_of_compose(server: str) -> None:
    declared, service = main_container(pods(rendered(BUNDLED))[server]), SERVICES[server]
    assert declared["image"] in service["image"]
    assert declared.get("command") == service.get("entrypoint")
    assert declared.get("args") == service.get("command")
    found = environment(declared, SECRET)
    assert set(found) == set(service["environment"])
    folder = found.get("PGDATA", "/data")
    assert folder.startswith(declared["volumeMounts"][0]["mountPath"])
    [scripts] = [each for each in declared["volumeMounts"] if each["name"] == "scripts"]
    mounted = service["volumes"][1].split(":")[1]
    files = of_kind(rendered(BUNDLED), "ConfigMap")[server]["data"]
    [(name, script)] = files.items()
    file = scripts.get("subPath", name)
    place = scripts["mountPath"] if "subPath" in scripts else f"{scripts['mountPath']}/{name}"
    assert (file, place) == (name, mounted)
    assert script.strip() == (REPOSITORY / service["volumes"][1].split(":")[0]).read_text().strip()


@each_file
def test_a_pod_has_no_right_that_it_does_not_need(values: Path) -> None:
    for pod in pods(rendered(values)).values():
        spec = pod["spec"]
        security = spec["securityContext"]
        assert security["runAsNonRoot"] is True and security["runAsUser"] > 0
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        # Kubernetes would set variables such as ARRESTER_WEB_PORT.
        assert spec["enableServiceLinks"] is False
        for each in containers(pod):
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert "memory" in each["resources"]["limits"]
            assert "/tmp" in [mount["mountPath"] for mount in each["volumeMounts"]]
            mounted = {mount["name"] for mount in each["volumeMounts"]}
            claims = of_kind(rendered(values), "StatefulSet")
            of_claims = {
                claim["metadata"]["name"]
                for owner in claims.values()
                for claim in owner["spec"]["volumeClaimTemplates"]
            }
            assert mounted <= {volume["name"] for volume in spec["volumes"]} | of_claims


@each_file
def test_no_manifest_has_a_secret(values: Path) -> None:
    assert "Secret" not in {each["kind"] for each in rendered(values)}
    for pod in pods(rendered(values)).values():
        for container in containers(pod):
            stated = {each["name"]: each["value"] for each in container["env"] if "value" in each}
            urls = [stated.pop(each) for each in URLS if each in stated]
            assert all(re.search(r"://[a-z_-]*:\$\([A-Z_]+_PASSWORD\)@", each) for each in urls)
            of_images = {"PGDATA", "REDIS_MAXMEMORY"}
            assert all(is_setting(each) for each in stated.keys() - of_images)


@pytest.mark.parametrize("values", [EXTERNAL, BUNDLED], ids=lambda path: path.stem)
def test_only_migrations_run_as_the_owner(values: Path) -> None:
    secret = SECRET | {each: each for each in URLS}
    owners = ("owner", "MIGRATE_DATABASE_URL", "admin-secret", "operator-secret", "viewer-secret")
    for process, pod in pods(rendered(values)).items():
        if process in ("postgres", "redis"):
            continue
        for each in containers(pod):
            texts = environment(each, secret).values()
            found = {owner for owner in owners if any(owner in text for text in texts)}
            expected = {
                "owner" if values == BUNDLED else "MIGRATE_DATABASE_URL",
                *("admin-secret", "operator-secret", "viewer-secret"),
            }
            assert found == (expected if process == "migrate" else set()), process


def test_processes_find_the_bundled_servers() -> None:
    manifests = rendered(BUNDLED)
    addresses = {
        f"{each['metadata']['name']}:{each['spec']['ports'][0]['port']}"
        for each in of_kind(manifests, "Service").values()
    }
    assert addresses == {"arrester-web:8000", "arrester-postgres:5432", "arrester-redis:6379"}
    found = environment(main_container(pods(manifests)["worker"]), SECRET)
    assert {each: found[each] for each in URLS if each in found} == {
        "DATABASE_URL": "postgresql://arrester_app:app-secret@arrester-postgres:5432/arrester",
        "REDIS_URL": "redis://:redis-secret@arrester-redis:6379/0",
        "ARRESTER_BROKER_URL": "redis://arrester-broker:broker-secret@arrester-redis:6379/1",
    }


def test_each_documented_setting_reaches_each_process() -> None:
    names = {each for each in documented_variables() - ELSEWHERE if is_setting(each)}
    options = [word for name in names for word in ("--set-string", f"settings.{name}=given")]
    for process, pod in pods(rendered(EXTERNAL, *options)).items():
        for each in containers(pod):
            found = environment(each, SECRET | dict.fromkeys(URLS, "url"))
            assert {name for name in names if found.get(name) != "given"} == set(), process


def test_the_settings_of_the_ingress_follow_from_it() -> None:
    found = environment(main_container(pods(rendered(EVERYTHING))["web"]), SECRET)
    derived = {
        "ARRESTER_URL": "https://arrester.example",
        "ARRESTER_TRUSTED_ORIGINS": "https://arrester.example",
        "ARRESTER_HTTPS": "1",
        "ARRESTER_PROXIES": "2",
    }
    assert derived.items() <= found.items()
    assert "arrester.example" in found["ARRESTER_ALLOWED_HOSTS"].split(",")
    [ingress] = of_kind(rendered(EVERYTHING), "Ingress").values()
    [path] = ingress["spec"]["rules"][0]["http"]["paths"]
    assert path["backend"]["service"]["name"] == "arrester-web"


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("existingSecret=", "existingSecret"),
        ("settings.ARRESTER_SECRET_KEY=hunter2", "ARRESTER_SECRET_KEY"),
        ("settings.DATABASE_URL=postgresql://a:b@c/d", "DATABASE_URL"),
        ("settings.ARRESTER_RETENTION_DAYS=90", "ARRESTER_RETENTION_DAYS"),
        ("ingress.enabled=true", "host"),
        ("web.replica=3", "replica"),
        ("worker.replicas=0", "replicas"),
    ],
)
def test_values_that_cannot_work_are_refused(option: str, named: str) -> None:
    assert named in refusal("--set", option)


@each_file
def test_selectors_select_the_pods_that_they_are_for(values: Path) -> None:
    found = pods(rendered(values))

    def selected(selector: Manifest) -> set[str]:
        return {process for process, pod in found.items() if selects(selector, pod)}

    for process, each in of_kind(rendered(values), "Service").items():
        assert selected({"matchLabels": each["spec"]["selector"]}) == {process}
        [port] = each["spec"]["ports"]
        named = {one["name"]: one for one in main_container(found[process])["ports"]}
        assert named[port["targetPort"]]["containerPort"] == port["port"]
    for kind in ("Deployment", "StatefulSet", "PodDisruptionBudget"):
        for process, each in of_kind(rendered(values), kind).items():
            assert selected(each["spec"]["selector"]) == {process}
    policies = of_kind(rendered(values), "NetworkPolicy")
    assert selected(policies["server"]["spec"]["podSelector"]) == {*SERVER, "migrate"}
    for process in policies.keys() - {"server"}:
        assert selected(policies[process]["spec"]["podSelector"]) == {process}


@pytest.mark.parametrize("values", [BUNDLED, EVERYTHING], ids=lambda path: path.stem)
def test_only_the_server_reaches_postgresql(values: Path) -> None:
    found, policies = pods(rendered(values)), of_kind(rendered(values), "NetworkPolicy")
    for server, others in (("postgres", 0), ("redis", 1)):
        spec = policies[server]["spec"]
        assert spec["policyTypes"] == ["Ingress", "Egress"] and "egress" not in spec
        [rule] = spec["ingress"]
        first, *rest = rule["from"]
        reaching = {name for name, pod in found.items() if selects(first["podSelector"], pod)}
        assert reaching == {*SERVER, "migrate"}
        assert len(rest) == others
    # All pods of the server have a policy, and only that of web lets something in.
    assert "ingress" not in policies["server"]["spec"]
    assert policies["web"]["spec"]["ingress"][0]["ports"] == [{"port": "http"}]


def test_workers_are_scaled_by_the_age_of_waiting_events() -> None:
    [scaler] = of_kind(rendered(EVERYTHING), "HorizontalPodAutoscaler").values()
    deployment = of_kind(rendered(EVERYTHING), "Deployment")["worker"]
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    # An upgrade would set it back.
    assert "replicas" not in deployment["spec"]
    assert of_kind(rendered(EXTERNAL), "Deployment")["worker"]["spec"]["replicas"] == 2
    assert not of_kind(rendered(EXTERNAL), "HorizontalPodAutoscaler")


@each_file
def test_a_stopped_server_has_no_pods_but_those_of_its_databases(values: Path) -> None:
    running, stopped = rendered(values), rendered(values, "--set", "stopped=true")
    assert set(pods(running)) - set(pods(stopped)) == set(SERVER)
    gone = {each["kind"] for each in running} - {each["kind"] for each in stopped}
    assert gone <= {"Deployment", "PodDisruptionBudget", "HorizontalPodAutoscaler"}
    assert of_kind(stopped, "Job") == of_kind(running, "Job")


def test_a_migration_that_differs_has_another_name() -> None:
    def name(*options: str) -> str:
        [job] = of_kind(rendered(EXTERNAL, *options), "Job").values()
        return str(job["metadata"]["name"])

    assert name() == name("--set", "web.replicas=5")
    others = [name("--set", each) for each in ("image.tag=9.9.9", "existingSecret=other")]
    assert len({name(), *others}) == 3


def test_all_processes_of_the_server_wait_for_the_migration() -> None:
    for process, pod in pods(rendered(EXTERNAL)).items():
        waiting = [each["name"] for each in pod["spec"].get("initContainers", ())]
        assert waiting == (["migrations"] if process in SERVER else []), process


def test_the_how_to_names_the_keys_of_the_secret() -> None:
    used = {
        each["valueFrom"]["secretKeyRef"]["key"]
        for values in (EXTERNAL, BUNDLED)
        for pod in pods(rendered(values)).values()
        for container in containers(pod)
        for each in container["env"]
        if "valueFrom" in each
    }
    table = HOW_TO.read_text().partition("| key | needed |")[2].partition("\n\n")[0]
    named = [
        key
        for row in re.findall(r"^\| ([^|]+)", table, re.MULTILINE)
        for key in re.findall(r"`(\w+)`", row)
    ]
    assert sorted(named) == sorted(used)


def test_the_commands_of_the_how_to_name_objects_of_the_chart() -> None:
    kinds = ("Deployment", "Service", "HorizontalPodAutoscaler")
    objects = {
        f"{each['kind'].lower()}/{each['metadata']['name']}"
        for each in rendered(EVERYTHING)
        if each["kind"] in kinds
    }
    text = HOW_TO.read_text()
    named = set(re.findall(r"\b(?:deployment|service)/arrester-\w+", text))
    scaler = re.findall(r"get (horizontalpodautoscaler) (\S+)", text)
    named |= {"/".join(each) for each in scaler}
    assert len(named) == 3 and named <= objects
    assert set(re.findall(r"\barrester-\w+-0\b", text)) == {"arrester-postgres-0"}

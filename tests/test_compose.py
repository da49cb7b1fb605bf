"""docker-compose.yml is complete, and the commands that it declares start.

Not every machine has a container engine. The commands therefore run as plain processes with the
environment of the file and the embedded servers.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import psycopg
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from redis import AuthenticationError, Redis
from redis.exceptions import NoPermissionError

from arrester.controlplane import embedded
from arrester.controlplane.celery import app
from arrester.controlplane.celery_workers import FOLDS, HOUSEKEEPING
from arrester.controlplane.embedded import postgres
from arrester.controlplane.embedded import redis as embedded_redis
from arrester.controlplane.embedded.home import BROKER_RIGHTS
from arrester.controlplane.local import demo
from tests import declared_processes, services
from tests.declared_processes import wait_until
from tests.patience import PATIENCE_SECONDS
from tests.ports import free_port
from tests.services import REPOSITORY, running

VARIABLES = {
    "ARRESTER_SECRET_KEY": "only for tests, and long enough to be accepted",
    "ARRESTER_APP_PASSWORD": "app-secret",
    "ARRESTER_OWNER_PASSWORD": "owner-secret",
    "ARRESTER_ADMIN_PASSWORD": "admin-secret",
    "ARRESTER_OPERATOR_PASSWORD": "operator-secret",
    "ARRESTER_VIEWER_PASSWORD": "viewer-secret",
    "POSTGRES_PASSWORD": "postgres-secret",
    "REDIS_PASSWORD": "redis-secret",
    "REDIS_BROKER_PASSWORD": "broker-secret",
}
COMPOSE: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def interpolated(text: str, variables: Mapping[str, str]) -> str:
    """Replace ${NAME}, ${NAME:-default} and ${NAME:?} as Compose does."""

    def value(found: re.Match[str]) -> str:
        name, operator, default = found.groups()
        if operator == ":?" and name not in variables:
            raise KeyError(name)
        return variables.get(name) or default or ""

    return re.sub(r"\$\{(\w+)(:[-?])?([^}]*)\}", value, text).replace("$$", "$")


def environment(service: str, urls: embedded.Urls) -> dict[str, str]:
    """Return the declared environment with the URLs of the test servers."""
    declared = SERVICES[service]["environment"]
    env = {name: interpolated(str(value), VARIABLES) for name, value in declared.items()}
    owner = urlsplit(env["DATABASE_URL"]).username == "arrester_owner"
    env["DATABASE_URL"] = urls.migrate_database if owner else urls.database
    env |= {"REDIS_URL": urls.redis, "ARRESTER_BROKER_URL": urls.broker}
    env["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return env


def started(
    service: str, urls: embedded.Urls, log: Path, *, port: int = 8000
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Run the declared command of `service`, with `port` instead of 8000."""
    env = environment(service, urls)
    return declared_processes.started(SERVICES[service]["command"], env, log, port=port)


def test_the_file_follows_the_compose_specification() -> None:
    schema = json.loads((REPOSITORY / "tests/data/compose-spec.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(COMPOSE)


def test_the_file_declares_every_service() -> None:
    ours = {"migrate", "web", "wake", "worker", "housekeeper", "demo"}
    assert set(SERVICES) == {"postgres", "redis", *ours}
    assert SERVICES["demo"]["profiles"] == ["demo"]
    assert SERVICES["demo"]["command"] == ["python", "-m", demo.MODULE]


def test_the_file_for_tls_adds_a_port_to_redis_and_nothing_else() -> None:
    schema = json.loads((REPOSITORY / "tests/data/compose-spec.json").read_text())
    more = yaml.safe_load((REPOSITORY / "docker-compose.tls.yml").read_text())
    jsonschema.Draft202012Validator(schema).validate(more)
    assert set(more["services"]) == {"redis"}
    assert "command" not in SERVICES["redis"]
    assert more["services"]["redis"]["command"][::2] == [
        "--tls-port",
        "--tls-cert-file",
        "--tls-key-file",
        "--tls-auth-clients",
    ]


@pytest.mark.parametrize("service", SERVICES)
def test_a_process_has_no_right_that_it_does_not_need(service: str) -> None:
    declared = SERVICES[service]
    assert declared["cap_drop"] == ["ALL"] and "cap_add" not in declared
    assert declared["security_opt"] == ["no-new-privileges:true"]
    assert declared["read_only"] is True
    assert "/tmp" in [each.partition(":")[0] for each in declared["tmpfs"]]
    assert re.fullmatch(r"\d+g", interpolated(declared["mem_limit"], {}))
    if "build" not in declared:
        # Images of others begin as root, and change their user by rights that are dropped here.
        assert declared["user"] == {"postgres": "postgres", "redis": "999"}[service]
    assert declared["volumes"][0].split(":")[0] in COMPOSE["volumes"]
    assert all(each.endswith(":ro") for each in declared["volumes"][1:])


def test_only_the_server_reaches_postgresql() -> None:
    assert set(COMPOSE["networks"]) == {"store", "agents"}
    assert COMPOSE["networks"]["store"] == {"internal": True}
    networks = {name: set(each["networks"]) for name, each in SERVICES.items()}
    assert networks.pop("postgres") == {"store"}
    assert networks.pop("redis") == networks.pop("demo") == {"agents"}
    assert all(each == {"store", "agents"} for each in networks.values())


def test_no_argument_has_a_password() -> None:
    files = [COMPOSE, yaml.safe_load((REPOSITORY / "docker-compose.tls.yml").read_text())]
    for name, service in (each for file in files for each in file["services"].items()):
        words = [*service.get("entrypoint", ()), *service.get("command", ())]
        words += service.get("healthcheck", {}).get("test", ())
        shown = " ".join(interpolated(each, VARIABLES) for each in words)
        assert not [each for each in VARIABLES.values() if each in shown], name


def test_the_servers_are_of_the_versions_that_the_tests_start() -> None:
    images = [interpolated(SERVICES[name]["image"], {}) for name in ("postgres", "redis")]
    valkey = embedded_redis.binary()
    assert valkey.name == "valkey-server"
    [(major, _)] = [embedded_redis.version(valkey)]
    assert images == [f"postgres:{postgres.MAJOR}", f"valkey/valkey:{major}"]
    page = (REPOSITORY / "docs/reference/server.md").read_text()
    assert f"`{images[0]}`, `{images[1]}`" in page
    # An image of another version finds the data, and refuses it.
    assert SERVICES["postgres"]["environment"]["PGDATA"] == inside("postgres")[0]


def inside(service: str) -> list[str]:
    """Return the folders of a container that are mounted."""
    return [each.split(":")[1] for each in SERVICES[service]["volumes"]]


@pytest.mark.parametrize("name", ["valkey-server", "redis-server"])
def test_the_declared_redis_has_the_user_of_the_broker(name: str, tmp_path: Path) -> None:
    mounted = dict(each.split(":")[1::-1] for each in SERVICES["redis"]["volumes"])
    command = [mounted.get(each, each) for each in SERVICES["redis"]["entrypoint"]]
    command = [f"/bin/{command[0]}", str(REPOSITORY / command[1])]
    (tmp_path / name).symlink_to(embedded_redis.binary())
    declared = {
        name: interpolated(text, VARIABLES)
        for name, text in SERVICES["redis"]["environment"].items()
    }
    place = tmp_path / "redis.sock"
    command += ["--port", "0", "--unixsocket", str(place)]
    env = declared | {"PATH": str(tmp_path)}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not place.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            # The script has become the server: signals reach it.
            arguments = Path(f"/proc/{server.pid}/cmdline").read_text()
            assert name in arguments and "secret" not in arguments
            assert_redis_is_as_declared(place)
        finally:
            server.terminate()


def assert_redis_is_as_declared(place: Path) -> None:
    url = urlsplit(interpolated(SERVICES["web"]["environment"]["ARRESTER_BROKER_URL"], VARIABLES))
    login = url.netloc.partition("@")[0]
    with Redis.from_url(f"unix://{login}@{place}?db={url.path[1:]}") as broker:
        assert broker.ping()
        assert broker.lpush(FOLDS, "a task")
        with pytest.raises(NoPermissionError):
            broker.flushall()
        # Redis has no rights by database: the keys of agents are in another one.
        broker.select(0)
        for key in ("arrester:movies:events", "arrester:movies:state", "other"):
            with pytest.raises(NoPermissionError):
                broker.exists(key)
    with Redis.from_url(f"unix://:redis-secret@{place}") as redis:
        settings = redis.config_get("max*") | redis.config_get("append*")
        rights = redis.acl_list()
    expected = {"maxmemory": str(1 << 30), "maxmemory-policy": "noeviction", "appendonly": "yes"}
    assert settings.items() >= expected.items()
    [broker_user] = [each for each in map(str, rights) if "arrester-broker" in each]
    assert all(each in broker_user.split() for each in BROKER_RIGHTS.split())
    with Redis.from_url(f"unix://{place}") as stranger, pytest.raises(AuthenticationError):
        stranger.ping()


def test_every_variable_without_default_is_required() -> None:
    text = (REPOSITORY / "docker-compose.yml").read_text()
    required = {name for name, rest in re.findall(r"\$\{(\w+)([^}]*)\}", text) if rest == ":?"}
    assert required == set(VARIABLES)
    with pytest.raises(KeyError, match="REDIS_PASSWORD"):
        interpolated("${REDIS_PASSWORD:?}", {})


@pytest.mark.parametrize("service", ["web", "wake", "worker", "housekeeper"])
def test_every_setting_that_is_not_specific_to_one_machine_is_passed(service: str) -> None:
    text = (REPOSITORY / "docs/reference/server.md").read_text()
    documented = dict(re.findall(r"^\| `(ARRESTER_\w+)` \| ([^|]*) \|", text, re.MULTILINE))
    # These are for embedded servers, development, or the published port of the host; or the file
    # composes them.
    elsewhere = {"ARRESTER_HOME", "ARRESTER_DEBUG", "ARRESTER_PORT", "ARRESTER_ALLOWED_HOSTS"}
    elsewhere |= {"ARRESTER_BROKER_URL", "ARRESTER_SECRET_KEY"}
    declared = SERVICES[service]["environment"]
    for name in documented.keys() - elsewhere:
        assert interpolated(declared[name], {name: "given"}) == "given", name
        [default] = re.findall(r"^`(.*)`$", documented[name]) or [""]
        assert interpolated(declared[name], {}) == default, name


@pytest.mark.parametrize("service", ["web", "wake", "worker", "housekeeper"])
def test_only_migrations_run_as_the_owner(service: str) -> None:
    def user(name: str) -> str | None:
        declared = SERVICES[name]["environment"]["DATABASE_URL"]
        return urlsplit(interpolated(declared, VARIABLES)).username

    assert user(service) == "arrester_app"
    assert user("migrate") == "arrester_owner"


def test_the_declared_migration_runs(fresh_database: embedded.Urls, tmp_path: Path) -> None:
    log = tmp_path / "migrate.log"
    with started("migrate", fresh_database, log) as process:
        assert process.wait(PATIENCE_SECONDS) == 0, log.read_text()
    assert "created user operator, password from ARRESTER_OPERATOR_PASSWORD" in log.read_text()
    assert "operator-secret" not in log.read_text()


def test_the_declared_web_process_is_healthy_under_any_name(
    fresh_database: embedded.Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VARIABLES, "ARRESTER_ALLOWED_HOSTS", "arrester.example")
    monkeypatch.setitem(VARIABLES, "ARRESTER_HTTPS", "1")
    log, port = tmp_path / "web.log", free_port()
    _, *check = SERVICES["web"]["healthcheck"]["test"]
    check = [sys.executable, *(word.replace("8000", str(port)) for word in check[1:])]

    def healthy() -> bool:
        done = subprocess.run(check, capture_output=True, text=True, check=False)
        assert "HTTP Error" not in done.stderr, log.read_text()
        return done.returncode == 0

    with started("web", fresh_database, log, port=port) as process:
        wait_until(healthy, process, log)
        # Only the probes accept any host name and plain HTTP.
        assert login_page(port, "127.0.0.1") == (400, None)
        assert login_page(port, "arrester.example") == (301, "https://arrester.example/login")


def login_page(port: int, host: str) -> tuple[int, str | None]:
    """Request the login page from `host`; return the status and the Location header."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    with closing(connection):
        connection.request("GET", "/login", headers={"Host": host})
        response = connection.getresponse()
        return response.status, response.getheader("Location")


@pytest.mark.usefixtures("redis")
@pytest.mark.parametrize(("service", "queue"), [("worker", FOLDS), ("housekeeper", HOUSEKEEPING)])
def test_a_declared_worker_answers_and_consumes_only_its_queue(
    service: str, queue: str, fresh_database: embedded.Urls, tmp_path: Path
) -> None:
    log = tmp_path / f"{service}.log"
    with started(service, fresh_database, log) as process:
        wait_until(lambda: bool(app.control.ping(timeout=0.5)), process, log)
        (queues,) = (app.control.inspect(timeout=5).active_queues() or {}).values()
    assert [each["name"] for each in queues] == [queue]


def test_the_declared_wake_requests_sweeps(
    fresh_database: embedded.Urls, tmp_path: Path, redis: Redis
) -> None:
    log = tmp_path / "wake.log"
    with started("wake", fresh_database, log) as process:
        wait_until(lambda: redis.llen(FOLDS) > 1, process, log)
    assert process.returncode == 0, log.read_text()


def test_the_init_script_creates_both_roles() -> None:
    with running() as urls:
        services.drop(urls, "arrester")
        with psycopg.connect(urls.admin_database, autocommit=True) as admin:
            admin.execute("DROP ROLE arrester_owner, arrester_app")
        login = conninfo_to_dict(urls.admin_database)
        bin_folder = postgres.installation() / "bin"
        env = {
            "PGHOST": str(login["host"]),
            "PGPASSWORD": str(login["password"]),
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
        }
        script = REPOSITORY / "docker" / "postgres-roles.sh"
        subprocess.run(["bash", script], env=env | VARIABLES, check=True)
        with psycopg.connect(urls.admin_database) as admin:
            query = "SELECT datlocprovider, datcollate FROM pg_database WHERE datname = 'arrester'"
            assert admin.execute(query).fetchall() == [("c", "C")]
        assert may_create_tables(env["PGHOST"], "owner")
        assert not may_create_tables(env["PGHOST"], "app")


def may_create_tables(host: str, role: str) -> bool:
    password = VARIABLES[f"ARRESTER_{role.upper()}_PASSWORD"]
    login = make_conninfo(host=host, dbname="arrester", user=f"arrester_{role}", password=password)
    with psycopg.connect(login) as connection:
        question = "SELECT has_schema_privilege('public', 'CREATE')"
        return bool((connection.execute(question).fetchone() or (False,))[0])

"""Environment variables: defaults, rejected values, and their list in the reference."""

from __future__ import annotations

import os
import re
import secrets
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from celery import Celery
from django.contrib.auth.models import User
from django.db import ProgrammingError, connection

from arrester.controlplane import embedded
from arrester.controlplane.celery import broker_tls
from arrester.controlplane.embedded import EmbeddedError, known_urls
from arrester.controlplane.env import Environment, InvalidSetting
from arrester.controlplane.redis import redis_urls
from arrester.controlplane.settings import database_settings
from tests.services import REPOSITORY


def test_every_variable_has_a_default() -> None:
    environment = Environment.read({})
    assert environment.home == Path.cwd() / ".arrester"
    assert (environment.port, environment.debug) == (8000, False)
    assert environment.database_url is None


def test_an_empty_variable_counts_as_unset() -> None:
    assert Environment.read({"ARRESTER_PORT": "", "DATABASE_URL": " "}) == Environment.read({})


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("ARRESTER_PORT", "eighty", "an integer from 1 to 65535"),
        ("ARRESTER_PORT", "0", "an integer from 1 to 65535"),
        ("ARRESTER_PORT", "²", "an integer from 1 to 65535"),
        ("ARRESTER_COMMAND_EXPIRY_SECONDS", "-3", "an integer from 1"),
        ("ARRESTER_DEBUG", "yes", "one of 0, 1"),
        ("ARRESTER_LOG_LEVEL", "LOUD", "one of DEBUG, INFO, WARNING, ERROR"),
        ("ARRESTER_ALERT_HOSTS", "https://hooks.example/path", "*.example.com"),
        ("ARRESTER_ALERT_HOSTS", "*", "*.example.com"),
        ("DATABASE_URL", "mysql://root@db/x", "starts with postgresql:// or postgres://"),
        ("REDIS_URL", "localhost:6379", "starts with redis:// or rediss:// or unix://"),
        ("REDIS_URL", "redis://localhost:port/0", "starts with redis://"),
    ],
)
def test_an_invalid_value_is_reported_with_its_variable_and_the_allowed_ones(
    name: str, value: str, allowed: str
) -> None:
    with pytest.raises(InvalidSetting) as error:
        Environment.read({name: value})
    message = str(error.value)
    assert message.startswith(f"{name}=")
    assert allowed in message
    assert "root" not in message


def test_a_short_secret_key_is_rejected_and_not_printed() -> None:
    with pytest.raises(InvalidSetting, match="at least 32") as error:
        Environment.read({"ARRESTER_SECRET_KEY": "hunter2"})
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("value", ["hunter2", '{"flights": "hunter2"}', '["hunter2"]'])
def test_invalid_topics_of_dead_letters_are_rejected_and_not_printed(value: str) -> None:
    with pytest.raises(InvalidSetting, match="a JSON object of topics") as error:
        Environment.read({"ARRESTER_DEAD_LETTERS_KAFKA": value})
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    "command",
    [
        ["manage.py", "check"],
        ["-m", "celery", "-A", "arrester.controlplane", "report"],
        ["-m", "uvicorn", "arrester.controlplane.web.asgi:application"],
    ],
    ids=["manage", "celery", "uvicorn"],
)
def test_an_invalid_value_stops_the_start_with_one_line(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=REPOSITORY,
        env=os.environ
        | {"ARRESTER_PORT": "x", "DJANGO_SETTINGS_MODULE": "arrester.controlplane.settings"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    expected = "ARRESTER_PORT='x' is not allowed: an integer from 1 to 65535\n"
    assert done.stderr == expected


def test_settings_of_production_have_no_warnings() -> None:
    production = {
        "ARRESTER_HTTPS": "1",
        "ARRESTER_ALLOWED_HOSTS": "arrester.example",
        "ARRESTER_SECRET_KEY": secrets.token_urlsafe(40),
        "DATABASE_URL": "postgresql://arrester@127.0.0.1:1/nothing",
    }
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=REPOSITORY,
        env=os.environ | production,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "System check identified no issues (2 silenced).\n"


def test_damaged_credentials_stop_the_start_with_one_line(tmp_path: Path) -> None:
    file = tmp_path / "credentials.json"
    for content in (b"{", b"[]", b'{"app": null}', b'{"unknown": "x"}', b"\xff"):
        file.write_bytes(content)
        with pytest.raises(EmbeddedError, match=r"credentials\.json is damaged \(.*\): restore"):
            known_urls(tmp_path)
    done = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=REPOSITORY,
        env=os.environ | {"ARRESTER_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert re.fullmatch(rf"{file} is damaged \(.*\): restore it .*\n", done.stderr)


def test_a_command_without_its_server_reports_it_in_two_lines() -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "rebuild"],
        cwd=REPOSITORY,
        env=os.environ | {"DATABASE_URL": "postgresql://nobody:x@127.0.0.1:1/nothing"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first.startswith("PostgreSQL request failed: ") and "port 1" in first
    assert second == "Check that PostgreSQL is running and that DATABASE_URL is correct."


def test_only_the_owner_makes_superusers(fresh_database: embedded.Urls) -> None:
    for name in ("root", "ana"):
        User.objects.create(username=name)
    changes = (
        lambda: User.objects.create(username="eve", is_superuser=True),
        lambda: User.objects.filter(username="ana").update(is_superuser=True),
    )
    for change in changes:
        with pytest.raises(ProgrammingError, match="arrester_app cannot make a superuser"):
            change()
    with connection.cursor() as cursor, pytest.raises(ProgrammingError, match="must be owner"):
        cursor.execute("ALTER TABLE auth_user DISABLE TRIGGER no_superuser")

    def create(name: str, url: str) -> subprocess.CompletedProcess[str]:
        command = ["createsuperuser", "--noinput", "--username", name, "--email", "x@example.com"]
        return subprocess.run(
            [sys.executable, "manage.py", *command],
            cwd=REPOSITORY,
            env=os.environ | {"DATABASE_URL": url, "DJANGO_SUPERUSER_PASSWORD": "only for tests"},
            capture_output=True,
            text=True,
            check=False,
        )

    refused = create("eve", fresh_database.database)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 2)
    assert "set DATABASE_URL to the value of MIGRATE_DATABASE_URL" in refused.stderr
    assert create("owned", fresh_database.migrate_database).returncode == 0
    # A superuser logs in and changes its password as before.
    owned = User.objects.get(username="owned")
    assert owned.is_superuser
    owned.save()


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("redis://:s@cache:6379/1", "redis://:s@cache:6379/1"),
        ("unix://:a%2Fb@/run/r.sock?db=2", "redis+socket://:a%2Fb@/run/r.sock?virtual_host=2"),
        ("unix:///run/r.sock?password=p", "redis+socket://:p@/run/r.sock?virtual_host=0"),
        ("unix://me:p@/run/r.sock?db=1", "redis+socket://me:p@/run/r.sock?virtual_host=1"),
    ],
)
def test_celery_uses_the_same_redis(url: str, broker: str) -> None:
    assert redis_urls.for_celery(url) == broker


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("rediss://:s@cache:6380/1", (ssl.CERT_REQUIRED, True, None)),
        ("rediss://cache?ssl_ca_certs=/etc/ca.pem", (ssl.CERT_REQUIRED, True, "/etc/ca.pem")),
        ("rediss://cache?ssl_check_hostname=false", (ssl.CERT_REQUIRED, False, None)),
        ("rediss://cache?ssl_cert_reqs=none", (ssl.CERT_NONE, False, None)),
    ],
)
def test_celery_verifies_the_certificate_of_redis_as_our_client_does(
    url: str, expected: tuple[ssl.VerifyMode, bool, str | None]
) -> None:
    # As the current application it would send all later tasks of this process.
    celery = Celery(
        broker=redis_urls.for_celery(url), broker_use_ssl=broker_tls(url), set_as_current=False
    )
    ours = redis.Redis.from_url(url).connection_pool.make_connection()
    options = celery.connection_for_write().ssl
    assert isinstance(options, dict)
    for each in (redis.SSLConnection(**options), ours):
        assert isinstance(each, redis.SSLConnection)
        assert (each.cert_reqs, each.check_hostname, each.ca_certs) == expected
    assert broker_tls("redis://cache") is None


@pytest.mark.usefixtures("fresh_database")
def test_both_ends_detect_a_lost_host() -> None:
    """The lock of a worker on a lost host is released after half a minute, not two hours."""
    with connection.cursor() as cursor:
        # The names only: on the unix socket of the tests PostgreSQL reports the values as 0.
        cursor.execute("SELECT name FROM pg_settings WHERE source = 'client'")
        names = {name for (name,) in cursor.fetchall()}
        assert connection.connection is not None
        ours = connection.connection.info.get_parameters()
    expected = {"tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count"}
    assert expected | {"tcp_user_timeout", "jit", "idle_in_transaction_session_timeout"} <= names
    assert (ours["keepalives_idle"], ours["tcp_user_timeout"]) == ("15", "30000")
    settings = database_settings("DATABASE_URL", "postgresql:///x?options=-c%20work_mem%3D8MB")
    assert settings["OPTIONS"]["options"].startswith("-c jit=off -c max_parallel_workers_per_gat")
    assert " -c tcp_keepalives_idle=15 " in settings["OPTIONS"]["options"]
    assert settings["OPTIONS"]["options"].endswith(" -c tcp_user_timeout=30000 -c work_mem=8MB")


def test_postgresql_may_have_several_hosts() -> None:
    url = "postgresql://app:p%40@first:5432,second:5433/arrester?target_session_attrs=read-write"
    environment = Environment.read({"DATABASE_URL": url, "MIGRATE_DATABASE_URL": url})
    assert environment.database_url == environment.migrate_database_url == url
    found = database_settings("DATABASE_URL", url)
    assert (found["HOST"], found["PORT"], found["NAME"]) == (
        "first,second",
        "5432,5433",
        "arrester",
    )
    assert (found["USER"], found["PASSWORD"]) == ("app", "p@")
    assert found["OPTIONS"]["target_session_attrs"] == "read-write"
    with pytest.raises(InvalidSetting, match="DATABASE_URL") as refused:
        Environment.read({"DATABASE_URL": url.replace("5433", "none")})
    assert "p%40" not in str(refused.value)


def test_the_reference_lists_every_variable() -> None:
    source = Path(REPOSITORY / "controlplane/env.py").read_text()
    known = set(re.findall(r'"((?:ARRESTER|CELERY|DATABASE|MIGRATE|REDIS)_[A-Z_]+)"', source))
    readme = (REPOSITORY / "docs/reference/server.md").read_text()
    assert known
    assert known - set(re.findall(r"`([A-Z_]+)`", readme)) == set()

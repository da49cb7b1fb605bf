"""The environment: what is read, what is refused, and that the README lists it."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from celery import Celery
from django.db import connection

from arrester.controlplane.celery import broker_tls, broker_url
from arrester.controlplane.env import Environment, WrongSetting
from arrester.controlplane.settings import database_settings
from tests.services import REPOSITORY


def test_nothing_has_to_be_set() -> None:
    environment = Environment.read({})
    assert environment.home == REPOSITORY / ".arrester"
    assert (environment.port, environment.debug) == (8000, False)
    assert environment.database_url is None


def test_an_empty_variable_is_as_good_as_none() -> None:
    assert Environment.read({"ARRESTER_PORT": "", "DATABASE_URL": " "}) == Environment.read({})


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("ARRESTER_PORT", "eighty", "a whole number from 1 to 65535"),
        ("ARRESTER_PORT", "0", "a whole number from 1 to 65535"),
        ("ARRESTER_PORT", "²", "a whole number from 1 to 65535"),
        ("ARRESTER_COMMAND_EXPIRY_SECONDS", "-3", "a whole number from 1"),
        ("ARRESTER_DEBUG", "yes", "one of 0, 1"),
        ("ARRESTER_LOG_LEVEL", "LOUD", "one of DEBUG, INFO, WARNING, ERROR"),
        ("DATABASE_URL", "mysql://root@db/x", "starts with postgresql:// or postgres://"),
        ("REDIS_URL", "localhost:6379", "starts with redis:// or rediss:// or unix://"),
        ("REDIS_URL", "redis://localhost:port/0", "starts with redis://"),
    ],
)
def test_a_wrong_value_names_variable_value_and_what_is_allowed(
    name: str, value: str, allowed: str
) -> None:
    with pytest.raises(WrongSetting) as refused:
        Environment.read({name: value})
    message = str(refused.value)
    assert message.startswith(f"{name}=")
    assert allowed in message
    assert "root" not in message


def test_a_short_secret_key_is_refused_and_not_shown() -> None:
    with pytest.raises(WrongSetting, match="at least 32") as refused:
        Environment.read({"ARRESTER_SECRET_KEY": "hunter2"})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "command",
    [
        ["manage.py", "check"],
        ["-m", "celery", "-A", "arrester.controlplane", "report"],
        ["-m", "uvicorn", "arrester.controlplane.web.asgi:application"],
    ],
    ids=["manage", "celery", "uvicorn"],
)
def test_a_wrong_value_stops_the_start_with_one_line(command: list[str]) -> None:
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
    expected = "ARRESTER_PORT='x' is not allowed: a whole number from 1 to 65535\n"
    assert done.stderr == expected


def test_a_command_without_its_server_says_so_in_a_line_or_two() -> None:
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
    assert first.startswith("PostgreSQL does not answer as it should: ") and "port 1" in first
    assert second == "Is it running, is its URL right?"


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("redis://:s@cache:6379/1", "redis://:s@cache:6379/1"),
        ("unix://:a%2Fb@/run/r.sock?db=2", "redis+socket://:a%2Fb@/run/r.sock?virtual_host=2"),
        ("unix:///run/r.sock?password=p", "redis+socket://:p@/run/r.sock?virtual_host=0"),
    ],
)
def test_celery_gets_the_same_redis(url: str, broker: str) -> None:
    assert broker_url(url) == broker


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("rediss://:s@cache:6380/1", (ssl.CERT_REQUIRED, True, None)),
        ("rediss://cache?ssl_ca_certs=/etc/ca.pem", (ssl.CERT_REQUIRED, True, "/etc/ca.pem")),
        ("rediss://cache?ssl_check_hostname=false", (ssl.CERT_REQUIRED, False, None)),
        ("rediss://cache?ssl_cert_reqs=none", (ssl.CERT_NONE, False, None)),
    ],
)
def test_celery_asks_redis_who_it_is_as_we_do(
    url: str, asked: tuple[ssl.VerifyMode, bool, str | None]
) -> None:
    # Not the current one: all tasks of this process would be sent by it from now on.
    celery = Celery(broker=broker_url(url), broker_use_ssl=broker_tls(url), set_as_current=False)
    ours = redis.Redis.from_url(url).connection_pool.make_connection()
    said = celery.connection_for_write().ssl
    assert isinstance(said, dict)
    for each in (redis.SSLConnection(**said), ours):
        assert isinstance(each, redis.SSLConnection)
        assert (each.cert_reqs, each.check_hostname, each.ca_certs) == asked
    assert broker_tls("redis://cache") is None


@pytest.mark.usefixtures("fresh_database")
def test_a_host_that_goes_without_a_word_is_noticed_at_either_end() -> None:
    """A lock that a dead worker's host holds is free after half a minute, not two hours."""
    with connection.cursor() as cursor:
        # The values are those of TCP, and 0 on the tests' unix socket.
        cursor.execute("SELECT name FROM pg_settings WHERE source = 'client'")
        said = {name for (name,) in cursor.fetchall()}
        assert connection.connection is not None
        ours = connection.connection.info.get_parameters()
    names = {"tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count"}
    assert names | {"tcp_user_timeout", "jit", "idle_in_transaction_session_timeout"} <= said
    assert (ours["keepalives_idle"], ours["tcp_user_timeout"]) == ("15", "30000")
    options = database_settings("DATABASE_URL", "postgresql:///x?options=-c%20work_mem%3D8MB")
    assert options["OPTIONS"]["options"].startswith("-c jit=off -c max_parallel_workers_per_gat")
    assert " -c tcp_keepalives_idle=15 " in options["OPTIONS"]["options"]
    assert options["OPTIONS"]["options"].endswith(" -c tcp_user_timeout=30000 -c work_mem=8MB")


def test_the_readme_lists_every_variable() -> None:
    source = Path(REPOSITORY / "controlplane/env.py").read_text()
    known = set(re.findall(r'"((?:ARRESTER|DATABASE|MIGRATE|REDIS)_[A-Z_]+)"', source))
    readme = (REPOSITORY / "README.md").read_text()
    assert known
    assert known - set(re.findall(r"`([A-Z_]+)`", readme)) == set()

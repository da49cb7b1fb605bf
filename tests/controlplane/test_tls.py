"""Connections with TLS to Redis and PostgreSQL, as docs/how-to/encrypt-connections.md has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import psycopg
import pytest
from celery import Celery
from django.db.backends.postgresql.base import DatabaseWrapper
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from redis import Redis

from arrester.agents.transport.redis_client import AppendStatus, RedisClient
from arrester.controlplane import actions, embedded
from arrester.controlplane.celery import broker_tls
from arrester.controlplane.redis import redis_client, redis_urls
from arrester.controlplane.settings import database_settings
from arrester.domain.errors import RedisUnavailable
from arrester.domain.identity import redis_keys
from tests import tls_proxy
from tests.agents.sample_events import INSTANCE
from tests.controlplane.outbound.test_agent_users import SPOOL, batch
from tests.kafka_certificates import authority

pytestmark = pytest.mark.django_db


class Tls(NamedTuple):
    """The port of a server with TLS, and the file of its certificate authority."""

    port: int
    trusted: Path


@pytest.fixture
def redis_tls(redis: Redis, services: embedded.Urls, tmp_path: Path) -> Iterator[Tls]:
    place = unquote(urlsplit(services.redis).path)
    with tls_proxy.in_front_of(place, tmp_path) as found:
        yield Tls(*found)


def test_an_agent_connects_to_redis_with_tls_and_its_own_user(
    redis_tls: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = actions.add_agent_credential("flights", actor="ada")
    _, _, login = new.redis_url.partition("//")
    login = login.partition("@")[0]
    url = f"rediss://{login}@localhost:{redis_tls.port}/0"
    monkeypatch.setenv("SSL_CERT_FILE", "/dev/null")
    agent = RedisClient(
        f"{url}?ssl_ca_certs={redis_tls.trusted}", application="flights", instance=INSTANCE
    )
    assert agent.append(SPOOL, [batch(1)], last=None)[0] is AppendStatus.DONE
    assert not agent.is_latched()
    agent.close()
    # The authority is unknown; the certificate is of another host.
    for wrong in (url, f"{url}?ssl_ca_certs={redis_tls.trusted}".replace("localhost", "127.0.0.1")):
        stranger = RedisClient(wrong, application="flights", instance=INSTANCE)
        with pytest.raises(RedisUnavailable, match="certificate verify failed"):
            stranger.is_latched()
        stranger.close()
    plain = RedisClient(url.replace("rediss", "redis"), application="flights", instance=INSTANCE)
    with pytest.raises(RedisUnavailable):
        plain.is_latched()
    plain.close()


def test_the_server_and_celery_connect_to_redis_with_tls(
    redis_tls: Tls, services: embedded.Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, login = services.redis.partition("//")
    login = login.partition("@")[0]
    url = f"rediss://{login}@localhost:{redis_tls.port}/0?ssl_ca_certs={redis_tls.trusted}"
    with redis_client.Redis.from_url(url) as server:
        server.set(redis_keys.state("flights"), "OPEN")
    broker = redis_urls.for_celery(url)
    with Celery(broker=broker, broker_use_ssl=broker_tls(url), set_as_current=False) as app:
        app.send_task("x", queue="tls", retry=False)
    with Redis.from_url(services.redis) as redis:
        assert (redis.get(redis_keys.state("flights")), redis.llen("tls")) == (b"OPEN", 1)


def test_the_server_connects_to_postgresql_with_tls(
    services: embedded.Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = conninfo_to_dict(services.database)
    place = f"{login['host']}/.s.PGSQL.5432"
    with tls_proxy.in_front_of(place, tmp_path, postgres=True) as (port, trusted):

        def connect(host: str, root: Path) -> str:
            url = f"postgresql://{login['user']}:{login['password']}@{host}:{port}"
            url += f"/{login['dbname']}?sslmode=verify-full&sslrootcert={root}"
            own: dict[str, Any] = database_settings("DATABASE_URL", url)
            own |= {"ATOMIC_REQUESTS": False, "AUTOCOMMIT": True, "TIME_ZONE": None}
            own |= {"CONN_HEALTH_CHECKS": False, "TEST": {}}
            database = DatabaseWrapper(own, "tls")
            try:
                with database.cursor() as cursor:
                    cursor.execute("SELECT current_user")
                    return str(cursor.fetchone()[0])
            finally:
                database.close()

        assert connect("localhost", trusted) == login["user"]
        with pytest.raises(Exception, match="does not match host name"):
            connect("127.0.0.1", trusted)
        other = tmp_path / "other"
        other.mkdir()
        with pytest.raises(Exception, match="SSL error"):
            connect("localhost", authority(other))
    # Without TLS verify-full refuses.
    plain = make_conninfo(services.database, sslmode="verify-full", host="localhost", port=port)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(plain)

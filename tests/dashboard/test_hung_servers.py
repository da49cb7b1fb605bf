"""A PostgreSQL or Redis that is suspended (SIGSTOP) delays no request by more than two seconds."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

import psycopg
import pytest
from django.conf import settings
from django.db import connections
from django.urls import reverse
from redis import Redis

from arrester.controlplane import embedded, queries
from arrester.controlplane.web import hang
from tests.dashboard.accounts import logged_in, make_user, token
from tests.dashboard.story import Story

LIMIT_SECONDS = 2.0
#: Orchestrators wait a second by default.
PROBE_LIMIT_SECONDS = 1.0
PROBES = ("/healthz", "/readyz")


class Answer(NamedTuple):
    """A response, and how long it took."""

    status: int
    body: str
    seconds: float


class Site:
    """A client of the web process: an operator with a session and a token."""

    def __init__(self, url: str) -> None:
        self._host = urlsplit(url).netloc
        user = make_user("ana", "operator")
        client = logged_in(user)
        client.get("/")
        session = client.cookies[settings.SESSION_COOKIE_NAME].value
        self._csrf = "a" * 32
        self._headers = {
            "Cookie": f"{settings.SESSION_COOKIE_NAME}={session};csrftoken={self._csrf}"
        }
        self._token = {"Authorization": f"Bearer {token('ana')}"}

    def get(self, path: str) -> Answer:
        is_rest = path.startswith(("/api", "/metrics"))
        return self._timely("GET", path, self._token if is_rest else self._headers)

    def post(self, path: str, fields: Mapping[str, str]) -> Answer:
        form = {"Content-Type": "application/x-www-form-urlencoded", "HX-Request": "true"}
        body = urlencode({**fields, "csrfmiddlewaretoken": self._csrf})
        return self._timely("POST", path, self._headers | form, body)

    def _timely(self, method: str, path: str, *rest: Any) -> Answer:
        """Return the first answer in time: a busy machine may delay some of them."""
        for _ in range(5):
            answer = self._request(method, path, *rest)
            if answer.seconds < limit(path):
                break
            # The next request waits again.
            time.sleep(hang.PAUSE_SECONDS)
        return answer

    def _request(
        self, method: str, path: str, headers: Mapping[str, str], body: str | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection(self._host, timeout=60)
        began = time.monotonic()
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            # A stream has no end.
            text = "" if path == "/live" else response.read().decode()
            return Answer(response.status, text, time.monotonic() - began)
        finally:
            connection.close()


def limit(path: str) -> float:
    """Return how long the answer of a path may take."""
    return PROBE_LIMIT_SECONDS if path in PROBES else LIMIT_SECONDS


@pytest.fixture
def site(server: str, fresh_database: embedded.Urls, redis: Redis) -> Iterator[Site]:
    """Return a client of a web process that has connections to both servers."""
    site = Site(server)
    yield site
    connections.close_all()


@contextmanager
def suspended(*pids: int) -> Iterator[None]:
    """Suspend processes, and let them continue at the end."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)
        time.sleep(hang.PAUSE_SECONDS)


def postgres_processes(services: embedded.Urls) -> list[int]:
    """Return PostgreSQL's first process and its backends."""
    with psycopg.connect(services.admin_database) as admin:
        backend = admin.info.backend_pid
        first = int(Path(f"/proc/{backend}/stat").read_text().rpartition(")")[2].split()[1])
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    return [first, *(int(each) for each in children if int(each) != backend)]


def check(answer: Answer, *statuses: int) -> str:
    assert answer.status in statuses, answer
    assert answer.seconds < LIMIT_SECONDS, answer
    return answer.body


def check_probes(site: Site, status: int, *, failed: list[str], degraded: list[str]) -> None:
    """Compare the answers of the probes, each within a second."""
    for path, expected in zip(PROBES, (200, status), strict=True):
        answer = site.get(path)
        assert answer.seconds < PROBE_LIMIT_SECONDS, answer
        body = check(answer, expected)
    found = json.loads(body)
    assert (found["failed"], found["degraded"]) == (failed, degraded)


def test_a_hung_redis_delays_no_page_and_no_command(site: Site, redis: Redis) -> None:
    story = Story()
    story.starts()
    task = story.pauses("JFK")
    page, rest = "/", "/api/v1/applications"
    check(site.get(page), 200)
    id = uuid4()
    pid = int(redis.info("server")["process_id"])
    with suspended(pid):
        assert "Redis does not answer" in check(site.get(page), 200)
        for path in ("/applications", "/instances", reverse("task", args=[task.digest]), rest):
            check(site.get(path), 200)
        metrics = check(site.get("/metrics"), 200)
        assert 'arrester_up{part="redis"} 0.0' in metrics
        check(site.get("/live"), 200)
        time.sleep(hang.PAUSE_SECONDS)
        check_probes(site, 200, failed=[], degraded=["redis"])
        time.sleep(hang.PAUSE_SECONDS)
        # It is committed, and relayed to the agent later.
        check(site.post(reverse("resume", args=[task.digest]), {"id": str(id)}), 200)
        assert queries.command(id).id == id
        time.sleep(hang.PAUSE_SECONDS)
        assert "is unknown" in check(site.post(reverse("test-error"), {}), 503)
    assert "Redis does not answer" not in check(site.get(page), 200)


def test_a_hung_postgresql_delays_no_answer(
    site: Site, services: embedded.Urls, redis: Redis
) -> None:
    story = Story()
    story.starts()
    task = story.pauses("JFK")
    own = reverse("task", args=[task.digest])
    check(site.get("/"), 200)
    id = uuid4()
    connections.close_all()
    redis_pid = int(redis.info("server")["process_id"])
    with suspended(*postgres_processes(services)):
        for path in ("/", "/tasks", own):
            assert "PostgreSQL does not answer" in check(site.get(path), 503)
        for path in ("/api/v1/applications", "/metrics"):
            assert json.loads(check(site.get(path), 503))["service"] == "postgres"
        check(site.get("/live"), 503)
        time.sleep(hang.PAUSE_SECONDS)
        check_probes(site, 503, failed=["postgres"], degraded=[])
        time.sleep(hang.PAUSE_SECONDS)
        posted = site.post(reverse("resume", args=[task.digest]), {"id": str(id)})
        assert "It is unknown whether the request was executed" in check(posted, 503)
        with suspended(redis_pid):
            time.sleep(hang.PAUSE_SECONDS)
            check_probes(site, 503, failed=["postgres"], degraded=["redis"])
            time.sleep(hang.PAUSE_SECONDS)
            check(site.get("/"), 503)
    check(site.get("/"), 200)
    # The same form again.
    check(site.post(reverse("resume", args=[task.digest]), {"id": str(id)}), 200)
    assert queries.command(id).id == id

"""Readiness: what a web process needs, and what it reports only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from threading import Event
from uuid import uuid4

import psycopg
from redis import Redis

from arrester.controlplane import actions, embedded, queries
from arrester.controlplane.queries.operation import readiness
from arrester.domain.identity import redis_keys
from arrester.domain.wire import codec
from tests.controlplane import streams


def test_a_missing_migration_prevents_requests_and_one_of_a_newer_version_does_not(
    fresh_database: embedded.Urls, redis: Redis
) -> None:
    newer = "INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, now())"
    with psycopg.connect(fresh_database.migrate_database) as owner:
        owner.execute(newer, ["controlplane", "9999_of_a_newer_version"])
    assert queries.readiness().failed == ()
    with psycopg.connect(fresh_database.migrate_database) as owner:
        owner.execute("DELETE FROM django_migrations WHERE app = 'sessions'")
    found = queries.readiness()
    assert found.missing_migrations == ("sessions.0001_initial",)
    assert (found.failed, found.degraded) == (("migrations",), ())


def test_events_that_wait_degrade_only(fresh_database: embedded.Urls, redis: Redis) -> None:
    actions.open_application("flights", actor="ana")
    now = datetime.now(UTC)
    for age in (timedelta(minutes=3), timedelta(minutes=1)):
        fields = streams.fields(uuid4(), codec.encode_batch([]))
        streams.put(redis, fields, id=f"{int((now - age).timestamp() * 1000)}-0")
    # A key of another type hides the lag of its application only.
    actions.open_application("orders", actor="ana")
    redis.set(redis_keys.events("orders"), "no stream")
    found = queries.readiness()
    assert (found.failed, found.degraded) == ((), ("fold",))
    assert found.lag is not None
    assert (round(found.lag.fold_seconds), found.lag.waiting_seconds >= 180) == (120, True)


def test_a_check_that_hangs_is_shared_by_the_requests_that_wait_for_it() -> None:
    """Many requests for `/readyz` take no more threads than one."""
    go_on = Event()
    check = readiness._Check(go_on.wait)
    runs = {check.start() for _ in range(5)}
    (run,) = runs
    assert readiness._until(0.0, run) is None
    go_on.set()
    assert run.result() is True
    assert check.start() is not run

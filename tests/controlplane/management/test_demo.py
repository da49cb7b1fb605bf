"""`arrester demo` reports a running pipeline only if there is one."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from redis import Redis

from arrester.controlplane import actions, embedded, queries
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.local import demo
from arrester.controlplane.management.commands import up
from arrester.domain.state.states import ApplicationStatus
from tests import histories
from tests.controlplane import streams

pytestmark = pytest.mark.usefixtures("fresh_database")


def test_the_demo_is_reported_as_running_when_an_instance_is(redis: Redis) -> None:
    actions.open_application(demo.APPLICATION, actor="ana")
    actions.shut_down_application(demo.APPLICATION, actor="ana", reason="the day is over")
    out = StringIO()
    with pytest.raises(CommandError, match="no instance of 'flights' is RUNNING after 0 s"):
        call_command("demo", "--wait-seconds", "0", stdout=out)
    assert out.getvalue() == "Application 'flights' is OPEN.\n"
    streams.send(redis, histories.started(), application=demo.APPLICATION)
    fold_stream.fold_stream(demo.APPLICATION)
    call_command("demo", stdout=out)
    assert "Its pipeline is RUNNING on driver, pid 7." in out.getvalue()


def test_a_first_start_creates_the_application_although_there_was_no_secret_key(
    fresh_database: embedded.Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {
        "ARRESTER_SECRET_KEY": settings.SECRET_KEY,
        "DATABASE_URL": fresh_database.database,
        "REDIS_URL": fresh_database.redis,
    }
    monkeypatch.setattr(settings, "SECRET_KEY", "")
    up.use_servers(env)
    demo.create_application()
    assert queries.application(demo.APPLICATION).state.status is ApplicationStatus.OPEN


def test_the_demo_has_a_spool_of_its_own(
    fresh_database: embedded.Urls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ARRESTER_SPOOL", raising=False)
    env = {
        "ARRESTER_HOME": str(tmp_path),
        "ARRESTER_SECRET_KEY": settings.SECRET_KEY,
        "REDIS_URL": fresh_database.redis,
    }
    found = up.demo_environment(env, password="a password")
    assert found["ARRESTER_SPOOL"] == str(tmp_path / "flights" / "spool")
    assert "ARRESTER_SECRET_KEY" not in found

"""Checks of the installation find what is wrong, and what to do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from django.conf import settings
from redis import Redis

from arrester.controlplane import embedded, models, queries
from arrester.controlplane.queries.operation.installation import clock, disk
from arrester.domain.events import InstanceStarted
from tests.dashboard.story import VERSIONS, Story


def found() -> dict[str, queries.Finding]:
    return {each.check: each for each in queries.findings()}


def problems() -> dict[str, str]:
    return {name: each.level.value for name, each in found().items() if each.level != "ok"}


#: Nothing runs beside the test.
NOT_RUNNING = dict.fromkeys(("process wake", "process worker", "process housekeeper"), "error")


def test_only_what_does_not_run_is_an_error_of_the_embedded_servers(db: None, redis: Redis) -> None:
    story = Story()
    story.starts()
    findings = found()
    assert {name: each for name, each in problems().items() if " disk" not in name} == NOT_RUNNING
    assert findings["process wake"].advice == "Start `arrester wake`."
    assert findings["postgres migrations"].value == "all applied"
    assert findings["postgres role"].value == "arrester_app, with the granted rights only"
    assert findings["redis password"].value == "set"
    assert findings["agents"].value == "1 live instances"


def test_agents_entries_and_settings_are_checked(
    db: None, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = Story(application="new"), Story(application="old")
    new.report(InstanceStarted(host="a", pid=1, versions={**VERSIONS, "agent": "99.0"}))
    old.report(InstanceStarted(host="b", pid=2, versions={"agent": "0.1.0"}))
    new.send(b"not a batch")
    now = datetime.now(UTC)
    models.AlertChannel.objects.create(
        name="mail", service="Email", secret=b"", created_at=now, failing_since=now, error="refused"
    )
    risky = replace(settings.ENVIRONMENT, debug=True, allowed_hosts=["arrester.example"])
    monkeypatch.setattr(settings, "ENVIRONMENT", risky)
    redis.config_set("maxmemory-policy", "allkeys-lru")
    try:
        findings = {each.value: each for each in queries.findings()}
    finally:
        redis.config_set("maxmemory-policy", "noeviction")
    assert findings["new on a, pid 1: 99.0, newer than 0.2.0"].level is queries.Level.ERROR
    assert findings["old on b, pid 2: 0.1.0"].level is queries.Level.WARNING
    assert (
        findings[f"mail fails since {now:%Y-%m-%d %H:%M} UTC: refused"].level is queries.Level.ERROR
    )
    assert findings["1 invalid entries"].level is queries.Level.WARNING
    assert findings["0 for arrester.example"].level is queries.Level.WARNING
    assert findings["allkeys-lru"].level is queries.Level.ERROR
    assert all(each.advice for each in findings.values() if each.level != "ok")


def test_a_missing_migration_is_an_error(fresh_database: embedded.Urls, redis: Redis) -> None:
    with psycopg.connect(fresh_database.migrate_database) as owner:
        owner.execute("DELETE FROM django_migrations WHERE app = 'sessions'")
    finding = found()["postgres migrations"]
    assert (finding.level, finding.value) == (
        queries.Level.ERROR,
        "not applied: sessions.0001_initial",
    )
    assert "arrester migrate" in finding.advice


def test_a_check_of_an_unreachable_redis_is_a_finding_and_the_others_run(
    db: None, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "REDIS_URL", f"unix:///nowhere/{uuid4()}.sock")
    findings = found()
    assert findings["redis memory"].level is queries.Level.ERROR
    assert findings["redis memory"].advice == "Start Redis, or correct REDIS_URL."
    assert findings["postgres migrations"].value == "all applied"


@pytest.mark.parametrize(
    ("ahead", "level"), [(0.0, "ok"), (-3.0, "warning"), (3.0, "warning"), (-60.0, "error")]
)
def test_clocks_are_compared(ahead: float, level: str) -> None:
    [finding] = clock.compared("x", lambda: datetime.now(UTC) + timedelta(seconds=ahead))
    assert finding.level.value == level
    seconds, unit = finding.value.split(maxsplit=1)
    assert float(seconds) == pytest.approx(ahead, abs=0.9)
    assert unit == "s to the web process"


def test_a_full_disk_is_an_error_and_an_unknown_folder_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_LEAST_BYTES", 10**18)
    assert [each.level.value for each in disk.space("x", str(tmp_path))] == ["error"]
    monkeypatch.setattr(disk, "_LEAST_BYTES", 0)
    monkeypatch.setattr(disk, "_LEAST_SHARE", 1.1)
    assert [each.level.value for each in disk.space("x", str(tmp_path))] == ["warning"]
    assert [each.level.value for each in disk.space("x", str(tmp_path / "none"))] == ["ok"]

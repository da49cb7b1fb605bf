"""A finder of conditions that raises ends no alert of the others, nor one of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from redis import Redis

from arrester.controlplane import alerts, models
from arrester.controlplane.queries import conditions
from arrester.controlplane.queries.conditions import (
    commands,
    condition,
    errors,
    flow,
    instances,
    isolation,
    pipelines,
    server,
    stops,
)
from arrester.controlplane.queries.conditions.causes import AlertCause
from arrester.controlplane.queries.conditions.condition import Condition
from tests.controlplane.alerts.conftest import Clock
from tests.controlplane.alerts.test_fairness import append, dead_run, error, stop

pytestmark = pytest.mark.usefixtures("fresh_database", "redis")
#: Each finder, and a cause that it finds.
FINDERS = {
    (instances, "read"): AlertCause.APPLICATION_SILENT,
    (stops, "read"): AlertCause.TASKS_PAUSED,
    (stops, "find"): AlertCause.TASKS_PAUSED,
    (stops, "retried"): AlertCause.TASKS_DEAD,
    (pipelines, "find"): AlertCause.PIPELINE_DEAD,
    (pipelines, "restarted"): AlertCause.PIPELINE_DEAD,
    (instances, "find"): AlertCause.INSTANCE_LOST,
    (flow, "find"): AlertCause.BACKLOG_GROWS,
    (errors, "rates"): AlertCause.FAILURE_RATE,
    (errors, "new"): AlertCause.ERROR_NEW,
    (commands, "unanswered"): AlertCause.COMMANDS_UNANSWERED,
    (commands, "without_effect"): AlertCause.COMMAND_EXPIRED,
    (server, "audit"): AlertCause.AUDIT_BROKEN,
    (server, "queues"): AlertCause.QUARANTINE,
    (server, "limits"): AlertCause.LIMIT_REACHED,
    (server, "processes"): AlertCause.SERVER_PROCESS,
    (server, "redis_memory"): AlertCause.SERVER_STORAGE,
    (server, "disk"): AlertCause.SERVER_STORAGE,
}


@pytest.fixture(autouse=True)
def nothing_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_logged", {})


def raises(*_: object, **__: object) -> Iterator[Condition]:
    raise OverflowError("date value out of range")


def fails_in_sql(*_: object, **__: object) -> Iterator[Condition]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 / 0")
    yield from ()


def takes_long(*_: object, **__: object) -> Iterator[Condition]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(60)")
    yield from ()


def open_causes() -> set[str]:
    return {*models.Alert.objects.filter(resolved_at=None).values_list("cause", flat=True)}


@pytest.mark.parametrize("finder", FINDERS, ids=lambda each: f"{each[0].__name__}.{each[1]}")
def test_a_finder_that_raises_hides_no_condition_of_others(
    finder: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    append("quiet", stop(1))
    append("quiet", dead_run(2))
    before = {each.key: each for each in conditions.find(now=datetime.now(UTC)).conditions}
    monkeypatch.setattr(*finder, raises)
    found = conditions.find(now=datetime.now(UTC))
    after = {each.key for each in found.conditions}
    cause = FINDERS[finder]
    applications = ["", "quiet"] if cause in found.unknown else ["quiet"]
    assert not any(found.is_known(cause, each) for each in applications)
    hidden = {key for key in before if found.is_known(key[0], key[1])}
    assert hidden <= after
    faults = [each for each in found.conditions if each.cause is AlertCause.CONDITIONS_UNKNOWN]
    assert faults and all(each.cause.critical and each.cause.alerts for each in faults)
    assert all("OverflowError: date value out of range" in each.detail for each in faults)


@pytest.mark.parametrize("fault", [raises, fails_in_sql, takes_long])
def test_alerts_of_a_finder_that_raises_stay_open_and_others_open_and_end(
    fault: Callable[..., Any], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    append("quiet", error(1))
    append("ended", dead_run(2))
    clock.update()
    assert open_causes() == {"ERROR_NEW", "PIPELINE_DEAD"}

    if fault is takes_long:
        monkeypatch.setattr(alerts, "STATEMENT_SECONDS", 1.5)
    monkeypatch.setattr(errors, "new", fault)
    append("quiet", stop(3))
    models.Thread.objects.filter(application="ended").delete()
    clock.update()
    clock.update(after=timedelta(minutes=1))
    assert open_causes() == {"ERROR_NEW", "TASKS_PAUSED", "CONDITIONS_UNKNOWN"}
    assert models.Alert.objects.get(cause="CONDITIONS_UNKNOWN").title == (
        "Conditions are not checked: new errors"
    )

    monkeypatch.undo()
    clock.update(after=timedelta(minutes=1))
    clock.update(after=timedelta(minutes=1))
    assert open_causes() == {"ERROR_NEW", "TASKS_PAUSED"}


def test_data_of_an_application_that_breaks_a_finder_hides_nothing_of_others(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    append("noisy", stop(1))
    clock.update()
    find = stops._by_failure

    def broken(each: stops.Stop, groups: Any) -> Condition:
        if each.application == "noisy":
            raise OverflowError("date value out of range")
        return find(each, groups)

    monkeypatch.setattr(stops, "_by_failure", broken)
    append("quiet", stop(2))
    clock.update()
    clock.update(after=timedelta(minutes=1))
    found = models.Alert.objects.filter(resolved_at=None).values_list("cause", "application")
    assert {*found} >= {
        ("TASKS_PAUSED", "noisy"),
        ("TASKS_PAUSED", "quiet"),
        ("CONDITIONS_UNKNOWN", "noisy"),
    }
    fault = models.Alert.objects.get(cause="CONDITIONS_UNKNOWN")
    assert fault.title == "noisy: conditions are not checked: stopped tasks and held records"
    assert fault.path == condition.application_path("noisy")


def test_the_exception_of_a_finder_is_logged_once_with_its_trace(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(errors, "new", raises)
        for _ in range(3):
            conditions.find(now=datetime.now(UTC))
    conditions.find(now=datetime.now(UTC))
    first = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert [each.getMessage() for each in first] == ["Conditions are not checked: new errors"]
    assert first[0].exc_info is not None

    monkeypatch.setattr(errors, "new", raises)
    conditions.find(now=datetime.now(UTC))
    assert len([each for each in caplog.records if each.levelno == logging.ERROR]) == 2


def test_a_lost_connection_is_no_fault_of_a_finder(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object, **__: object) -> Iterator[Condition]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        yield from ()

    monkeypatch.setattr(errors, "rates", ended)
    with pytest.raises(OperationalError):
        conditions.find(now=datetime.now(UTC))
    connection.close()

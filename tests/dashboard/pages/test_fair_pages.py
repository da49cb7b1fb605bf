"""One application with very many conditions hides none of another on pages and in status."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from uuid import UUID

import pytest
from django.test import Client
from msgspec.structs import replace

from arrester.dashboard.components import attention, fair_shares
from arrester.dashboard.pages import overview, pipelines
from arrester.dashboard.rest.resources import server
from arrester.domain.events import (
    Event,
    InstanceStarted,
    PipelinePaused,
    TaskPaused,
    ThreadDied,
    ThreadStarted,
)
from tests import histories
from tests.controlplane import streams
from tests.histories import FAILURE, RUN

NOISY = 12


@pytest.fixture(autouse=True)
def few(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "SHOWN", 4)
    monkeypatch.setattr(overview, "PIPELINES", 4)
    monkeypatch.setattr(server, "_CONDITIONS", 4)
    monkeypatch.setattr(server, "_PIPELINES", 4)
    monkeypatch.setattr(server, "_TASKS", 4)
    monkeypatch.setattr(pipelines, "SHOWN", 4)
    died = ThreadDied(reason="disk", failure=FAILURE, recordless=True)
    now = datetime.now(UTC)
    for number in range(NOISY):
        streams.append(run("noisy", number, died), received_at=now, application="noisy")
    paused = PipelinePaused(actor="olga", since=datetime.now(UTC))
    streams.append(run("quiet", 99, paused), received_at=now, application="quiet")


def run(
    application: str, number: int, last: ThreadDied | PipelinePaused | TaskPaused
) -> list[Event]:
    """Return the events of a run, whose instance is of its application."""
    id = UUID(int=number + 1)
    of = replace(RUN, pipeline=f"{application}-{number}", checkpoint=f"cp-{number}")
    started = InstanceStarted(host="driver", pid=number)
    return [
        histories.event(started, run=None, instance=id),
        *(histories.event(each, run=of, instance=id) for each in (ThreadStarted(), last)),
    ]


def read(client: Client, url: str) -> str:
    response = client.get(url)
    assert response.status_code == 200
    return response.content.decode()


def test_the_paused_pipeline_of_a_quiet_application_is_on_the_overview(viewer: Client) -> None:
    html = read(viewer, "/")
    assert "13 items need attention" in html
    needs = html[html.index('id="needs"') : html.index('class="tiles"')]
    assert needs.count("<li id=") == 4
    assert 'href="/pipelines/quiet/quiet-99"' in needs
    assert 'and 9 more, 9 of <a href="/applications/noisy">noisy</a>' in needs
    lines = html[html.index('class="tiles"') :]
    assert 'href="/pipelines/quiet/quiet-99"' in lines and "View all 13" in lines


def test_status_has_the_conditions_and_pipelines_of_a_quiet_application(viewer: Client) -> None:
    status = viewer.get("/api/v1/status").json()
    assert [each["application"] for each in status["conditions"]] == ["noisy"] * 3 + ["quiet"]
    assert status["conditions_in_all"] == NOISY + 1
    assert [each["application"] for each in status["pipelines"]] == ["noisy"] * 3 + ["quiet"]


def test_status_has_the_stopped_tasks_of_a_quiet_application(viewer: Client) -> None:
    """Those of the other application have stopped since."""
    for application, number in [("quiet", 99), *(("noisy", each) for each in range(NOISY))]:
        paused = TaskPaused(task="a", position=number, failure=FAILURE)
        events = run(application, number, paused)[1:]
        streams.append(events, received_at=datetime.now(UTC), application=application)
    stopped = viewer.get("/api/v1/status").json()["stopped"]
    assert [each["application"] for each in stopped] == ["noisy"] * 3 + ["quiet"]


def test_pipelines_are_filtered_by_application_and_run(viewer: Client) -> None:
    def listed(query: str) -> list[str]:
        found = re.findall(r'href="/pipelines/(\w+)/[\w-]+"', read(viewer, f"/pipelines{query}"))
        return [*dict.fromkeys(found)]

    assert listed("") == ["noisy"]
    assert listed("?application=quiet") == ["quiet"] == listed("?run=PAUSED")
    assert listed("?application=quiet&run=DEAD") == []
    assert "1 to 4 of 12" in read(viewer, "/pipelines?application=noisy")
    assert viewer.get("/pipelines?run=ASLEEP").status_code == 400


def test_each_application_has_its_share_of_the_first_items() -> None:
    def first(items: str, most: int) -> str:
        return "".join(fair_shares.first(items, most, application=str))

    assert first("aaaabcb", 4) == "aabc"
    assert first("aaaabcb", 10) == "aaaabcb"
    assert first("abcde", 3) == "abc"
    assert first("aaa", 2) == "aa" and first("", 2) == ""

"""The page of an application with very many pipelines, instances, stages and commands."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.test import Client
from msgspec.structs import replace

from arrester.dashboard.components.charts import task_grid
from arrester.dashboard.pages import applications
from arrester.domain.events import (
    CommandIssued,
    CommandKind,
    InstanceStarted,
    StageDescribed,
    TaskPaused,
    ThreadDied,
    ThreadStarted,
)
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, FAILURE, RUN

#: As many of each, and the most of a page.
MANY, MOST = 7, 3
OWN = f"/applications/{APPLICATION}"
STAGES = tuple(
    StageDescribed(name=f"stage-{number}", kind="Process", answer="FAIL", origin="default")
    for number in range(120)
)


@pytest.fixture(autouse=True)
def many(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_grid, "PIPELINES", MOST)
    monkeypatch.setattr(applications, "SHOWN", MOST)
    monkeypatch.setattr(applications, "PROGRESS_SHOWN", MOST)
    now = datetime.now(UTC)
    events = []
    for number in range(MANY):
        run = replace(RUN, pipeline=f"pipeline-{number}", checkpoint=f"cp-{number}")
        id = UUID(int=1 + number)
        started = InstanceStarted(
            host="driver", pid=number, versions={f"v{each}": "1" for each in range(30)}
        )
        command = CommandIssued(
            command=UUID(int=100 + number),
            kind=CommandKind.RESTART_PIPELINE,
            actor="olga",
            pipeline=run.pipeline,
            expires_at=now + timedelta(hours=1),
        )
        paused = TaskPaused(task="JFK", position=1, failure=FAILURE)
        events += [
            histories.event(started, run=None, instance=id),
            histories.event(ThreadStarted(), run=run, instance=id),
            histories.event(replace(histories.POLICY, stages=STAGES), run=run, instance=id),
            histories.event(paused, run=run, instance=id),
            histories.event(command, run=None),
        ]
    died = ThreadDied(reason="disk", failure=FAILURE)
    last = replace(RUN, pipeline=f"pipeline-{MANY - 1}", checkpoint=f"cp-{MANY - 1}")
    events.append(histories.event(died, run=last, instance=UUID(int=MANY)))
    streams.append(events, received_at=now)


def read(client: Client, url: str) -> str:
    response = client.get(url)
    assert response.status_code == 200
    return response.content.decode()


def pipelines(html: str) -> list[str]:
    return re.findall(r'<section class="card(?: policy)?" id="(?:pipeline|policy)-(.*?)-cp-', html)


@pytest.mark.parametrize("past", ["", f"as_of=@{5 * MANY + 1}&"])
def test_pipelines_are_shown_by_pages_failed_runs_first(viewer: Client, past: str) -> None:
    first = read(viewer, f"{OWN}?{past}")
    assert pipelines(first) == ["pipeline-6", "pipeline-0", "pipeline-1"]
    assert "Pipelines 1 to 3 of 7, dead runs first" in first and "page=2" in first
    assert pipelines(read(viewer, f"{OWN}?{past}page=2")) == [
        f"pipeline-{each}" for each in (2, 3, 4)
    ]
    # The last page, if there is none of the number.
    for page in (3, 50):
        assert pipelines(read(viewer, f"{OWN}?{past}page={page}")) == ["pipeline-5"]


def test_a_page_of_one_pipeline_is_a_page_of_its_tasks(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_grid, "CELLS", 1)
    first = read(viewer, f"{OWN}?pipeline=pipeline-5")
    assert pipelines(first) == ["pipeline-5"] and first.count('id="cell-') == 1
    second = read(viewer, f"{OWN}?pipeline=pipeline-5&page=2")
    assert pipelines(second) == ["pipeline-5"] and 'id="cell-' not in second


def test_policies_are_shown_by_pages_with_their_first_stages(viewer: Client) -> None:
    first = read(viewer, f"{OWN}?tab=policy")
    assert pipelines(first) == ["pipeline-0", "pipeline-1", "pipeline-2"]
    assert first.count('<b class="break">stage-') == 100 * MOST
    assert first.count("and 20 more stages") == MOST
    assert pipelines(read(viewer, f"{OWN}?tab=policy&page=3")) == ["pipeline-6"]
    strip = read(viewer, f"/pipelines/{APPLICATION}/pipeline-1")
    assert strip.count('<b class="break">stage-') == 100


def test_instances_and_commands_above_a_number_are_a_link(viewer: Client) -> None:
    html = read(viewer, f"{OWN}?tab=instances")
    assert html.count('<li id="instance-') == MOST
    assert len(re.findall(r" · v\d+ 1", html)) == 20 * MOST
    assert f'<a href="/instances?application={APPLICATION}">and 4 more instances</a>' in html
    assert html.count('class="progress" role="status"') == MOST
    assert "4 more commands in progress" in html
    past = read(viewer, f"{OWN}?as_of=@{5 * MANY + 1}")
    assert past.count('<li id="instance-') == MOST and "and 4 more instances" in past


def test_the_dialog_of_a_shutdown_counts_all_pipelines(operator: Client) -> None:
    html = read(operator, f"{OWN}/shut-down/ask")
    assert "7 pipelines with all tasks: pipeline-6, pipeline-0" in html

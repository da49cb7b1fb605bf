"""Pages of the past: a task, an application and an error group as they stood."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import urlencode

from django.test import Client
from django.urls import reverse

from controlplane import actions, queries
from controlplane.domain.groups import GroupAct, GroupWish
from controlplane.domain.ids import uuid7
from controlplane.queries import GroupFilter
from tests.dashboard.story import Story


def text(client: Client, url: str, *, status: int = 200) -> str:
    response = client.get(url)
    assert response.status_code == status, response.content.decode()[:500]
    return response.content.decode()


def test_a_task_as_of_an_event_is_its_past(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK", held=5)
    paused = queries.task(task.digest).state.status_sequence
    command = actions.resume_task(task.digest, actor="ana").id
    flights.resumes("JFK", command)
    url = reverse("task", args=[task.digest])
    now, then = text(operator, url), text(operator, f"{url}?as_of=@{paused}")
    assert f"{url}?as_of=@{paused}" in now
    assert "Why paused" in then and "Back to now" in then and "N384HA" in then
    assert 'id="actions"' not in then and "data-live=" not in then
    assert text(operator, f"{url}?as_of=tomorrow-ish", status=400)
    assert text(operator, f"{url}?as_of=@999999", status=400)


def test_an_application_as_of_an_event_is_its_past(flights: Story, operator: Client) -> None:
    flights.starts(host="spark-driver-1")
    before = queries.positions()["flights"]
    task = flights.pauses("JFK", held=5)
    paused = queries.positions()["flights"]
    command = actions.resume_task(task.digest, actor="ana").id
    flights.resumes("JFK", command)
    url = reverse("application", args=["flights"])
    newest = queries.positions()["flights"]
    assert f'{url}?as_of=@{newest}"' in text(operator, url)
    then = text(operator, f"{url}?as_of=@{paused}")
    assert "Back to now" in then and "1 PAUSED" in then and "spark-driver-1" in then
    cell = reverse("task", args=[task.digest])
    assert f'href="{cell}?as_of=%40{paused}"' in then
    assert "data-live=" not in then and 'id="shut-down"' not in then
    assert "PAUSED" not in text(operator, f"{url}?as_of=@{before}")
    moment = datetime.now(UTC).isoformat()
    assert "1 PAUSED" not in text(operator, f"{url}?{urlencode({'as_of': moment})}")
    assert text(operator, f"{url}?as_of=@999999", status=400)
    assert text(operator, reverse("application", args=["nobody"]) + "?as_of=@1", status=404)


def test_an_error_as_of_an_event_is_its_past(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK", held=5)
    paused = queries.positions()["flights"]
    (group,) = queries.groups(GroupFilter(application="flights")).rows
    url = reverse("error", args=["flights", group.fingerprint])
    flights.resumes("JFK", actions.resume_task(task.digest, actor="ana").id)
    wish = GroupWish(
        id=uuid7(datetime.now(UTC)), act=GroupAct.RESOLVE, fingerprint=group.fingerprint, actor="a"
    )
    actions.act_on_group("flights", wish)
    now, then = text(operator, url), text(operator, f"{url}?as_of=@{paused}")
    resolved = queries.group("flights", group.fingerprint).state
    assert f'{url}?as_of=@{resolved.sequence}"' in now and ">RESOLVED<" in now
    assert ">UNRESOLVED<" in then and "N384HA" in then and "Back to now" in then
    assert f'{reverse("task", args=[task.digest])}?as_of=%40{paused}"' in then
    assert text(operator, f"{url}?as_of=@1", status=404)

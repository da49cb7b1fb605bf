"""Pages of past states: a task, an application, an error group."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from urllib.parse import urlencode

import pytest
from django.test import Client
from django.urls import reverse
from redis import Redis

from arrester.controlplane import actions, embedded, queries, store
from arrester.controlplane.history import retention
from arrester.controlplane.queries import GroupFilter
from arrester.controlplane.queries.event_feed import pack_cursor
from arrester.domain.identity.uuids import uuid7
from arrester.domain.state.error_groups import GroupAct, GroupRequest
from tests import histories
from tests.controlplane import streams
from tests.dashboard.story import Story
from tests.histories import APPLICATION, JFK


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
    assert "Cause" in then and "Back to now" in then and "N384HA" in then
    assert 'id="actions"' not in then and "data-live=" not in then
    # The error is beside the field, above the current state.
    wrong = text(operator, f"{url}?as_of=tomorrow-ish", status=400)
    assert 'name="as_of" value="tomorrow-ish"' in wrong and f'action="{url}"' in wrong
    assert "an age (5m, 1h, 2d), a time" in wrong and "Back to now" not in wrong
    assert f'hx-get="{url}"' in wrong
    assert "the newest log position of flights" in text(
        operator, f"{url}?as_of=@999999", status=400
    )


def test_an_application_as_of_an_event_is_its_past(flights: Story, operator: Client) -> None:
    flights.starts(host="spark-driver-1")
    before = queries.log_positions()["flights"]
    task = flights.pauses("JFK", held=5)
    paused = queries.log_positions()["flights"]
    command = actions.resume_task(task.digest, actor="ana").id
    flights.resumes("JFK", command)
    url = reverse("application", args=["flights"])
    newest = queries.log_positions()["flights"]
    assert f'{url}?as_of=@{newest}"' in text(operator, url)
    then = text(operator, f"{url}?as_of=@{paused}")
    assert "Back to now" in then and "1 task PAUSED" in then and "spark-driver-1" in then
    cell = reverse("task", args=[task.digest])
    assert f'href="{cell}?as_of=%40{paused}"' in then
    assert "data-live=" not in then and 'id="shut-down"' not in then
    assert "PAUSED" not in text(operator, f"{url}?as_of=@{before}")
    moment = datetime.now(UTC).isoformat()
    assert "1 task PAUSED" not in text(operator, f"{url}?{urlencode({'as_of': moment})}")
    assert text(operator, f"{url}?as_of=@999999", status=400)
    assert text(operator, reverse("application", args=["nobody"]) + "?as_of=@1", status=404)


def test_an_age_and_the_last_command_are_points_of_the_past(
    flights: Story, operator: Client
) -> None:
    url = reverse("application", args=["flights"])
    last = f"{url}?as_of=last-command"
    assert "flights has no command" in text(operator, last, status=400)
    task = flights.pauses("JFK", held=5)
    paused = queries.log_positions()["flights"]
    flights.resumes("JFK", actions.resume_task(task.digest, actor="ana").id)
    then = text(operator, last)
    assert "1 task PAUSED" in then and f"flights @ {paused}." in then
    assert f'{reverse("task", args=[task.digest])}?as_of=%40{paused}"' in then
    assert "PAUSED" in text(operator, f"{reverse('task', args=[task.digest])}?as_of=last-command")
    assert "Back to now" in text(operator, f"{url}?as_of=0s")
    for age in ("5m", "1h"):
        assert f'href="{url}?as_of={age}"' in then
        missing = text(operator, f"{url}?as_of={age}", status=404)
        assert re.search(r"no application .* as of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC<", missing)
    assert "is not allowed" in text(operator, f"{url}?as_of=5 weeks", status=400)
    for page in ("overview", "tasks", "errors", "commands", "settings"):
        only = "shows the current state only"
        assert only in text(operator, reverse(page))
        refused = text(operator, f"{reverse(page)}?as_of=5m")
        assert "no earlier states" in refused and only not in refused


def test_an_error_as_of_an_event_is_its_past(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK", held=5)
    paused = queries.log_positions()["flights"]
    (group,) = queries.groups(GroupFilter(application="flights")).rows
    url = reverse("error", args=["flights", group.fingerprint])
    flights.resumes("JFK", actions.resume_task(task.digest, actor="ana").id)
    requested = GroupRequest(
        id=uuid7(datetime.now(UTC)), act=GroupAct.RESOLVE, fingerprint=group.fingerprint, actor="a"
    )
    actions.act_on_group("flights", requested)
    now, then = text(operator, url), text(operator, f"{url}?as_of=@{paused}")
    resolved = queries.group("flights", group.fingerprint).state
    assert f'{url}?as_of=@{resolved.sequence}"' in now and ">RESOLVED<" in now
    assert ">UNRESOLVED<" in then and "N384HA" in then and "Back to now" in then
    assert f'{reverse("task", args=[task.digest])}?as_of=%40{paused}"' in then
    assert text(operator, f"{url}?as_of=@1", status=404)


@pytest.mark.parametrize("as_of", ["@2", "2020-01-01T00:00:00Z"])
@pytest.mark.usefixtures("fresh_database", "redis")
def test_a_state_before_the_log_is_410_with_the_oldest_time(operator: Client, as_of: str) -> None:
    streams.append_late(5)
    retention.retain(days=30, replay_days=30)
    base = store.base(APPLICATION)
    asked = urlencode({"as_of": as_of})
    cause = histories.FAILURE.fingerprint
    for place in (
        f"tasks/{JFK.digest}",
        f"applications/{APPLICATION}",
        f"errors/{APPLICATION}/{cause}",
    ):
        response = operator.get(f"/api/v1/{place}?{asked}")
        assert response.status_code == 410, place
        assert base.received_at is not None
        begin = f"{base.received_at:%Y-%m-%d %H:%M:%S} UTC"
        assert response.json() == {
            "type": "urn:arrester:problem:before_history",
            "title": "The log does not reach back so far",
            "status": 410,
            "detail": f"the history of flights begins at @5, {begin}",
            "code": "before_history",
            "oldest_at": base.received_at.isoformat(),
            "sequence": 5,
        }
        page = text(operator, f"/{place}?{asked}", status=410)
        assert "the history of flights begins at @5" in page
    assert text(operator, f"/tasks/{JFK.digest}?as_of=@5")


def test_a_feed_cursor_before_the_log_is_410(
    fresh_database: embedded.Urls, redis: Redis, operator: Client
) -> None:
    streams.append_late(5)
    retention.retain(days=30, replay_days=30)
    response = operator.get(
        "/api/v1/feed", {"cursor": pack_cursor({store.read_stream(APPLICATION).id: 1})}
    )
    assert (response.status_code, response.json()["sequence"]) == (410, 5)

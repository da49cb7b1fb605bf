"""Held records: the same number everywhere, and the numbers over time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from django.test import Client
from django.urls import reverse

from arrester.controlplane import models, queries
from arrester.controlplane.history import rebuild
from arrester.domain.events import RecordsHeld, ResumeHow, TaskResumed
from tests.dashboard.overview_tiles import tiles
from tests.dashboard.story import Story

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def text(client: Client, url: str) -> str:
    response = client.get(url)
    assert response.status_code == 200
    return response.content.decode()


def held(*, hours: int = 8, application: str | None = None) -> list[int]:
    """Return the held records at the end of each of the last hours, the current one last."""
    until = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + HOUR
    since = until - hours * HOUR
    found = queries.held_over_time(since=since, until=until, step=HOUR, application=application)
    levels = [0] * hours
    for each in found:
        levels[(each.moment - since) // HOUR] += each.count
    return levels


def test_held_records_are_counted_by_the_hour(flights: Story) -> None:
    orders = Story(application="orders", checkpoint=str(uuid4()))
    orders.starts()
    flights.pauses("JFK", held=5, ago=5 * HOUR)
    orders.pauses("a", held=700, ago=2 * HOUR)
    flights.resumes("JFK", flights.command(flights.task("JFK")))

    assert held() == [0, 0, 5, 5, 5, 705, 705, 700]
    assert held(application="flights") == [0, 0, 5, 5, 5, 5, 5, 0]
    end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + HOUR
    together = queries.held_over_time(since=end - HOUR, until=end, step=HOUR, max_names=1)
    assert [(each.application, each.count) for each in together] == [("", 700)]
    # By day, and of a past range.
    until = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - HOUR
    since = until - 24 * HOUR
    (first, *_) = queries.held_over_time(since=since, until=until, step=24 * HOUR)
    assert (first.application, first.count) == ("flights", 5)
    for application in ("flights", "orders"):
        assert rebuild.differences(application) == []


def minutes(*, since: datetime, count: int, step: timedelta = MINUTE) -> list[int]:
    """Return the held records at the end of each step."""
    found = queries.held_over_time(since=since, until=since + count * step, step=step)
    levels = [0] * count
    for each in found:
        levels[(each.moment - since) // step] += each.count
    return levels


def test_held_records_are_counted_by_the_minute_and_fall_after_a_skip(flights: Story) -> None:
    """The hours have the same numbers, and hide the fall."""
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - 2 * HOUR

    def at(minute: int) -> timedelta:
        return datetime.now(UTC) - (hour + minute * MINUTE)

    flights.pauses("JFK", held=5, ago=at(3))
    flights.report(RecordsHeld(task="JFK", held=900), ago=at(6))
    skipped = TaskResumed(task="JFK", how=ResumeHow.SKIP, position=151_974, actor="ana")
    flights.report(RecordsHeld(task="JFK", held=899), skipped, ago=at(8))
    flights.report(RecordsHeld(task="JFK", held=400), ago=at(9))
    flights.report(RecordsHeld(task="JFK", held=0), ago=at(11))
    by_minute = [0, 0, 0, 5, 5, 5, 900, 900, 899, 400, 400, 0]
    assert minutes(since=hour, count=12) == by_minute
    assert minutes(since=hour + 2 * MINUTE, count=3, step=5 * MINUTE) == [900, 0, 0]
    assert held()[-4:] == [0, 0, 0, 0]
    # Where minutes are missing, as before an upgrade, the change of the hour is known.
    models.HeldMinute.objects.filter(minute__lt=hour + 9 * MINUTE).delete()
    assert minutes(since=hour, count=12) == [899] * 9 + [400, 400, 0]
    assert rebuild.differences("flights") == []


def test_held_records_over_time_have_a_chart_and_a_table(flights: Story, viewer: Client) -> None:
    flights.pauses("JFK", held=5, ago=3 * HOUR)
    for url in (
        reverse("overview") + "?range=24h",
        reverse("application", args=["flights"]),
        reverse("held"),
    ):
        page = text(viewer, url)
        assert "at the end of each hour, last 24 h" in page
        assert page.count("<td>5</td>") == 4
    assert "at the end of each 3 hours" in text(viewer, reverse("held") + "?range=7d")
    assert "aria-current" in text(viewer, reverse("held") + "?range=7d&application=flights")


def test_records_held_by_an_old_checkpoint_are_not_counted(flights: Story, viewer: Client) -> None:
    flights.pauses("JFK", held=42)
    flights.stops()
    anew = Story(checkpoint=str(uuid4()), epoch=2)
    anew.starts()
    anew.pauses("JFK", held=3)

    (tile,) = [tile.number for tile in tiles() if tile.label == "Held records"]
    listed = viewer.get("/api/v1/held").json()["results"]
    assert tile == queries.application("flights").held == queries.held_in_all()[0] == 3
    assert [each["held"] for each in listed] == [3]
    assert held()[-1] == held(application="flights")[-1] == 3
    assert "in order by 1 task." in text(viewer, reverse("held"))
    assert sum(models.Task.objects.values_list("held", flat=True)) == 45


def test_a_draining_task_shows_its_rate_and_when_it_is_done(
    flights: Story, operator: Client
) -> None:
    task = flights.pauses("JFK", held=9_000, ago=timedelta(minutes=3))
    page = reverse("task", args=[task.digest])
    flights.report(TaskResumed(task="JFK", how=ResumeHow.RETRY, actor="ana"))
    assert "records/s" not in text(operator, page)
    for seconds, held in ((20, 10_000), (10, 7_000), (0, 4_000)):
        flights.report(RecordsHeld(task="JFK", held=held), ago=timedelta(seconds=seconds))
    # Of 20 s, and the time between the reports.
    shown = re.search(r"(\d+) records/s", text(operator, page))
    drain = operator.get(f"/api/v1/tasks/{task.digest}").json()["drain"]
    assert 250 < drain["records_per_second"] <= 300
    assert shown is not None and int(shown[1]) == round(drain["records_per_second"])
    left = datetime.fromisoformat(drain["done_at"]) - datetime.now(UTC)
    assert timedelta(seconds=5) < left < timedelta(seconds=14)
    flights.report(RecordsHeld(task="JFK", held=0))
    assert operator.get(f"/api/v1/tasks/{task.digest}").json()["drain"] is None


def test_the_first_held_position_is_that_of_the_stop_if_no_agent_reports_it(
    flights: Story, viewer: Client
) -> None:
    task = flights.pauses("JFK", held=5)
    flights.report(RecordsHeld(task="JFK", held=9))
    state = queries.task(task.digest).state
    assert (state.held_from, state.first_held) == (None, state.position)
    row = text(viewer, reverse("held")).partition(f'id="held-{task.digest}"')[2]
    assert ">151,974<" in row.partition("</tr>")[0]
    # While it drains, its first position is not known.
    flights.report(TaskResumed(task="JFK", how=ResumeHow.RETRY), RecordsHeld(task="JFK", held=3))
    assert queries.task(task.digest).state.first_held is None

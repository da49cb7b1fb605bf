"""What needs somebody, most urgent first: the top of the overview."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from django.urls import reverse

from controlplane.domain.states import CommandState, TaskState, TaskStatus
from controlplane.queries import Lag, Overview, Summary
from dashboard import words

#: An instance that listens answers within a second; after this somebody should look.
ANSWER_WITHIN = timedelta(seconds=10)


class Item(NamedTuple):
    """One thing that needs somebody."""

    status: str
    name: str
    url: str
    text: str
    since: datetime | None
    application: str


class Tile(NamedTuple):
    """A number on the first page that leads to what it counts; `look` colours what is amiss."""

    number: int
    word: str
    url: str
    icon: str = ""
    look: str = ""


def tiles(seen: Overview) -> list[Tile]:
    """Return the numbers of the first page."""
    every = seen.applications
    tasks = reverse("tasks")
    paused = sum(each.paused for each in every)
    dead = sum(each.dead for each in every)
    lost = sum(each.lost for each in every)
    waiting, aside = len(seen.open_commands), sum(each.quarantined for each in seen.lags)
    return [
        Tile(len(every), "applications", reverse("applications")),
        Tile(paused, "PAUSED", f"{tasks}?state=PAUSED", "pause", "is-paused" if paused else ""),
        Tile(dead, "DEAD", f"{tasks}?state=DEAD", "cross", "is-dead" if dead else ""),
        Tile(lost, "LOST", reverse("applications"), "question", "is-lost" if lost else ""),
        Tile(seen.failed_last_hour, "failed this hour", reverse("errors")),
        Tile(waiting, "under way", reverse("commands"), "clock", "is-open" if waiting else ""),
        Tile(aside, "quarantined", reverse("quarantine"), "warning", "is-lost" if aside else ""),
    ]


def items(seen: Overview, *, now: datetime) -> list[Item]:
    """Return DEAD tasks, PAUSED ones by age, lost instances, commands unanswered, quarantine."""
    oldest_first = sorted(seen.stopped, key=lambda task: task.since or now)
    dead = [_task(task) for task in oldest_first if task.status is TaskStatus.DEAD]
    paused = [_task(task) for task in oldest_first if task.status is TaskStatus.PAUSED]
    lost = [_lost(each) for each in seen.applications if each.lost]
    silent = [_command(each) for each in seen.open_commands if now - each.issued_at > ANSWER_WITHIN]
    aside = [_quarantined(each) for each in seen.lags if each.quarantined]
    return [*dead, *paused, *lost, *silent, *aside]


def more(seen: Overview) -> int:
    """Return how many stopped tasks there are beyond those that are listed."""
    counted = sum(each.paused + each.dead for each in seen.applications)
    return max(0, counted - len(seen.stopped))


def _task(task: TaskState) -> Item:
    held = f"{task.held:,} held · " if task.held else ""
    why = words.cause(task.failure) if task.failure else "by hand"
    return Item(
        status=task.status,
        name=task.id.printed,
        url=reverse("task", args=[task.id.digest]),
        text=f"{held}{why}",
        since=task.since,
        application=task.id.application,
    )


def _lost(summary: Summary) -> Item:
    name = summary.state.name
    instances = "1 instance has" if summary.lost == 1 else f"{summary.lost} instances have"
    return Item(
        status="LOST",
        name=name,
        url=reverse("application", args=[name]) + "#instances",
        text=f"{instances} not been heard; the last known state is shown",
        since=None,
        application=name,
    )


def _command(command: CommandState) -> Item:
    about = command.task.printed if command.task else command.application
    return Item(
        status=command.status,
        name=f"Command for {about}",
        url=reverse("command", args=[command.id]),
        text=f"by {command.actor}, not answered yet",
        since=command.issued_at,
        application=command.application,
    )


def _quarantined(lag: Lag) -> Item:
    name, aside = lag.application, lag.quarantined
    entries = "1 entry was" if aside == 1 else f"{aside:,} entries were"
    return Item(
        status="QUARANTINED",
        name=name,
        url=reverse("quarantine") + f"?application={name}",
        text=f"{entries} not understood and kept aside",
        since=None,
        application=name,
    )

"""What needs attention, most urgent first: the top of the overview."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.urls import reverse
from django.utils.http import urlencode

from arrester.controlplane.domain.state.states import CommandState, CommandStatus, ThreadState
from arrester.controlplane.queries import Brief, Lag, Overview, Stop
from arrester.dashboard.components import filters
from arrester.dashboard.text import event_text

#: A live instance answers within a second; after this time an operator should look.
ANSWER_WITHIN = timedelta(seconds=10)


class Item(NamedTuple):
    """One entry of the list; `key` is its id."""

    key: str
    status: str
    name: str
    url: str
    text: str
    since: datetime | None
    application: str


class Tile(NamedTuple):
    """A number of the overview with its link; `look` is the colour if it needs attention."""

    number: int
    word: str
    url: str
    icon: str = ""
    look: str = ""


def tiles(seen: Overview) -> list[Tile]:
    """Return the numbers of the overview."""
    every = seen.applications
    tasks = reverse("tasks")
    paused = sum(each.paused for each in every)
    dead = sum(each.dead for each in every)
    lost = sum(each.lost for each in every)
    waiting, aside = len(seen.open_commands), sum(each.quarantined for each in seen.lags)
    held = sum(each.held for each in every)
    return [
        Tile(dead, "DEAD", f"{tasks}?state=DEAD", "cross", "is-dead" if dead else ""),
        Tile(paused, "PAUSED", f"{tasks}?state=PAUSED", "pause", "is-paused" if paused else ""),
        Tile(held, "held records", reverse("held"), "stack", "is-paused" if held else ""),
        Tile(
            lost, "LOST", f"{reverse('instances')}?show=lost", "question", "is-lost" if lost else ""
        ),
        Tile(seen.failed_last_hour, "failed in an hour", f"{reverse('errors')}?state=all&range=1h"),
        Tile(
            waiting,
            "in progress",
            f"{reverse('commands')}?state={filters.OPEN}",
            "clock",
            "is-open" if waiting else "",
        ),
        Tile(
            aside,
            "quarantined",
            f"{reverse('quarantine')}?waiting=1",
            "warning",
            "is-lost" if aside else "",
        ),
    ]


def items(seen: Overview, *, now: datetime) -> list[Item]:
    """Return DEAD tasks, PAUSED ones by age, held records without a live instance, lost
    instances, unanswered commands, quarantine, duplicate checkpoints."""
    stops = [_stop(each) for each in seen.stops]
    nobody = [_nobody(each) for each in seen.applications if each.held and not each.instances]
    lost = [_lost(each) for each in seen.applications if each.lost]
    silent = _silent([each for each in seen.open_commands if now - each.issued_at > ANSWER_WITHIN])
    aside = [_quarantined(each) for each in seen.lags if each.quarantined]
    twins = [_twin(each) for each in seen.twins]
    return [*stops, *nobody, *lost, *silent, *aside, *twins]


def _stop(stop: Stop) -> Item:
    task, alone = stop.task, stop.tasks == 1
    held = f"{stop.held:,} held · " if stop.held else ""
    why = event_text.cause(task.failure) if task.failure else "by hand"
    cause = task.failure.fingerprint if task.failure else ""
    asked = {"state": task.status.value, "application": task.id.application, "cause": cause}
    return Item(
        key=f"stop-{task.id.digest}",
        status=task.status,
        name=task.id.printed if alone else f"{stop.tasks:,} tasks of {task.id.pipeline}",
        url=reverse("task", args=[task.id.digest])
        if alone
        else f"{reverse('tasks')}?{urlencode(asked)}",
        text=f"{held}{why}",
        since=task.since,
        application=task.id.application,
    )


def _twin(thread: ThreadState) -> Item:
    return Item(
        key=f"twin-{thread.application}-{thread.pipeline}",
        status="TWO_CHECKPOINTS",
        name=thread.pipeline,
        url=reverse("application", args=[thread.application]),
        text="runs at two live checkpoints. Check whether one of them is a mistake",
        since=thread.since,
        application=thread.application,
    )


def _nobody(application: Brief) -> Item:
    name, held = application.name, application.held
    records = "1 record is" if held == 1 else f"{held:,} records are"
    return Item(
        key=f"nobody-{name}",
        status="NOBODY",
        name=name,
        url=f"{reverse('held')}?{urlencode({'application': name})}",
        text=f"{records} held, and no live instance. They wait until one starts",
        since=None,
        application=name,
    )


def _lost(application: Brief) -> Item:
    name, lost = application.name, application.lost
    instances = "1 instance has" if lost == 1 else f"{lost} instances have"
    return Item(
        key=f"lost-{name}",
        status="LOST",
        name=name,
        url=reverse("application", args=[name]) + "?tab=instances",
        text=f"{instances} no heartbeat. The last known state is shown",
        since=None,
        application=name,
    )


def _silent(commands: Sequence[CommandState]) -> list[Item]:
    """Return one entry for all commands of a kind and application without a live instance."""
    alike: dict[tuple[str, str], list[CommandState]] = defaultdict(list)
    for each in commands:
        alike[each.application, each.kind].append(each)
    return [_command(some[0]) if len(some) == 1 else _commands(some) for some in alike.values()]


def _commands(some: Sequence[CommandState]) -> Item:
    application, kind = some[0].application, some[0].kind
    actors = sorted({each.actor for each in some})
    by = actors[0] if len(actors) == 1 else f"{len(actors)} people"
    statuses = {each.status for each in some}
    state = some[0].status.value if len(statuses) == 1 else filters.OPEN
    asked = {"application": application, "state": state}
    return Item(
        key=f"commands-{application}-{kind}",
        status=CommandStatus.ISSUED if CommandStatus.ISSUED in statuses else some[0].status,
        name=f"{len(some):,} commands for {application}",
        url=f"{reverse('commands')}?{urlencode(asked)}",
        text=f"{kind.replace('_', ' ').capitalize()} by {by}, not answered yet",
        since=min(each.issued_at for each in some),
        application=application,
    )


def _command(command: CommandState) -> Item:
    about = command.task.printed if command.task else command.application
    return Item(
        key=f"command-{command.id}",
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
        key=f"aside-{name}",
        status="QUARANTINED",
        name=name,
        url=reverse("quarantine") + f"?application={name}",
        text=f"{entries} quarantined as invalid",
        since=None,
        application=name,
    )

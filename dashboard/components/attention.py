"""What needs attention, most urgent first: the top of the overview."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode

from arrester.controlplane import queries
from arrester.controlplane.domain.state.states import CommandState, CommandStatus, ThreadState
from arrester.controlplane.queries import ApplicationSummary, Lag, Overview, Stop, pipeline_key
from arrester.dashboard.components import filters
from arrester.dashboard.components.failure_rates import Rate
from arrester.dashboard.permissions import Person
from arrester.dashboard.text import event_text

#: How long a process keeps the number of items for the titles of other pages than the overview.
KEEP_SECONDS = 2.0
#: A live instance answers within a second; after this time an operator should look.
ANSWER_WITHIN = timedelta(seconds=10)


class Item(NamedTuple):
    """One entry of the list; `key` is its id."""

    key: str
    status: str
    name: str
    url: str
    text: str
    application: str
    since: datetime | None = None


class Tile(NamedTuple):
    """A number of the overview with its link; `look` is the colour if it needs attention."""

    number: int
    label: str
    url: str
    icon: str = ""
    look: str = ""


def tiles(overview: Overview, rate: Rate) -> list[Tile]:
    """Return the numbers of the overview; failures are those of the chart, in its time range."""
    applications, tasks = overview.applications, reverse("tasks")
    dead = sum(each.dead for each in applications)
    paused = sum(each.paused for each in applications)
    held = sum(each.held for each in applications)
    lost = sum(each.lost for each in applications)
    quarantined = sum(each.quarantined for each in overview.lags)
    instances = f"{reverse('instances')}?show=lost"
    commands = f"{reverse('commands')}?state={filters.OPEN}"
    quarantine = f"{reverse('quarantine')}?waiting=1"
    return [
        _tile(dead, "DEAD tasks", f"{tasks}?state=DEAD", "cross", "is-dead"),
        _tile(paused, "PAUSED tasks", f"{tasks}?state=PAUSED", "pause", "is-paused"),
        _tile(held, "Held records", reverse("held"), "stack", "is-paused"),
        _tile(lost, "LOST instances", instances, "question", "is-lost"),
        Tile(
            rate.chart.total,
            f"Failures, {rate.span.range.words}",
            f"{reverse('errors')}?{urlencode({'state': 'all', **rate.span.range.query})}",
        ),
        _tile(len(overview.open_commands), "Open commands", commands, "clock", "is-open"),
        _tile(quarantined, "Quarantined", quarantine, "warning", "is-lost"),
    ]


def _tile(number: int, label: str, url: str, icon: str, look: str) -> Tile:
    """Return a tile that needs attention unless its number is 0."""
    return Tile(number, label, url, icon, look if number else "")


def items(overview: Overview, *, now: datetime) -> list[Item]:
    """Return DEAD tasks, PAUSED ones by age, held records without a live instance, lost
    instances, unanswered commands, quarantine, pipelines that run on two checkpoints."""
    ended = overview.checkpoints.no_run_since
    stops = [_stop(each, ended.get(pipeline_key(each.task.id))) for each in overview.stops]
    no_instance = [
        _no_instance(each) for each in overview.applications if each.held and not each.instances
    ]
    lost = [_lost(each) for each in overview.applications if each.lost]
    unanswered = _unanswered(
        [each for each in overview.open_commands if now - each.issued_at > ANSWER_WITHIN]
    )
    quarantined = [_quarantined(each) for each in overview.lags if each.quarantined]
    duplicates = [_duplicate(each) for each in overview.on_two_checkpoints]
    return [*stops, *no_instance, *lost, *unanswered, *quarantined, *duplicates]


def total(overview: Overview, listed: Sequence[Item]) -> int:
    """Return the number of items, including stops that are not listed."""
    return len(listed) + overview.more_stops


class _Kept(NamedTuple):
    number: int
    until: float


#: By the applications that are seen; None: all.
_kept: dict[frozenset[str] | None, _Kept] = {}


def current_total(who: Person) -> int:
    """Return the number of items that the person sees, now or at most `KEEP_SECONDS` ago."""
    now = time.monotonic()
    for seen in [seen for seen, kept in [*_kept.items()] if kept.until <= now]:
        _kept.pop(seen, None)
    if kept := _kept.get(who.seen):
        return kept.number
    overview = queries.overview()
    number = total(overview, items(overview, now=timezone.now()))
    _kept[who.seen] = _Kept(number, now + KEEP_SECONDS)
    return number


def _stop(stop: Stop, no_run_since: datetime | None) -> Item:
    task, alone = stop.task, stop.tasks == 1
    held = f"{stop.held:,} held · " if stop.held else ""
    ended = f"no run since {no_run_since:%Y-%m-%d %H:%M} UTC · " if no_run_since else ""
    why = event_text.cause(task.failure) if task.failure else "paused by an operator"
    cause = task.failure.fingerprint if task.failure else ""
    query = {"state": task.status.value, "application": task.id.application, "cause": cause}
    return Item(
        key=f"stop-{task.id.digest}",
        status=task.status,
        name=task.id.printed if alone else f"{stop.tasks:,} tasks of {task.id.pipeline}",
        url=reverse("task", args=[task.id.digest])
        if alone
        else f"{reverse('tasks')}?{urlencode(query)}",
        text=f"{held}{ended}{why}",
        since=task.first_stopped,
        application=task.id.application,
    )


def _duplicate(thread: ThreadState) -> Item:
    return Item(
        key=f"duplicate-{thread.application}-{thread.pipeline}",
        status="TWO_CHECKPOINTS",
        name=thread.pipeline,
        url=reverse("application", args=[thread.application]),
        text="also runs on an older checkpoint, whose tasks are not counted. Stop one of the runs",
        since=thread.since,
        application=thread.application,
    )


def _no_instance(application: ApplicationSummary) -> Item:
    name, held = application.name, application.held
    records = "1 held record" if held == 1 else f"{held:,} held records"
    return Item(
        key=f"no-instance-{name}",
        status="NOBODY",
        name=name,
        url=f"{reverse('held')}?{urlencode({'application': name})}",
        text=f"{records}, and no live instance. Start an instance to resume, or dismiss the tasks",
        application=name,
    )


def _lost(application: ApplicationSummary) -> Item:
    name, lost = application.name, application.lost
    instances = "1 instance has" if lost == 1 else f"{lost} instances have"
    return Item(
        key=f"lost-{name}",
        status="LOST",
        name=name,
        url=reverse("application", args=[name]) + "?tab=instances",
        text=f"{instances} no heartbeat. The last known state is shown",
        application=name,
    )


def _unanswered(commands: Sequence[CommandState]) -> list[Item]:
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
    query = {"application": application, "state": state}
    return Item(
        key=f"commands-{application}-{kind}",
        status=CommandStatus.ISSUED if CommandStatus.ISSUED in statuses else some[0].status,
        name=f"{len(some):,} commands for {application}",
        url=f"{reverse('commands')}?{urlencode(query)}",
        text=f"{kind.replace('_', ' ').capitalize()} by {by}, no answer yet",
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
        text=f"by {command.actor}, no answer yet",
        since=command.issued_at,
        application=command.application,
    )


def _quarantined(lag: Lag) -> Item:
    name, number = lag.application, lag.quarantined
    entries = "1 entry was" if number == 1 else f"{number:,} entries were"
    return Item(
        key=f"quarantine-{name}",
        status="QUARANTINED",
        name=name,
        url=reverse("quarantine") + f"?application={name}",
        text=f"{entries} quarantined as invalid",
        application=name,
    )

"""What needs attention, most urgent first: the top of the overview, and of an application."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode

from arrester.controlplane.queries import Health, Lag, Overview, conditions
from arrester.controlplane.queries.conditions.causes import AlertCause
from arrester.controlplane.queries.conditions.condition import Condition
from arrester.dashboard.components import fair_shares, filters
from arrester.dashboard.components.charts.failure_rates import Rate
from arrester.dashboard.permissions import Person

#: The rows of the list, and the applications that are named as having more.
SHOWN, MORE_OF = 20, 5
#: How long a process keeps the number of items for the titles of other pages than the overview.
KEEP_SECONDS = 2.0
#: The states of the causes that have one; others are warnings, or critical.
_STATES = {
    AlertCause.PIPELINE_DEAD: "DEAD",
    AlertCause.DRIVER_FAILED: "FAILED",
    AlertCause.TASKS_DEAD: "DEAD",
    AlertCause.INSTANCE_LOST: "LOST",
    AlertCause.TASKS_PAUSED: "PAUSED",
    AlertCause.PIPELINE_LATE: "LATE",
    AlertCause.BATCH_LONG: "LATE",
    AlertCause.PIPELINE_PAUSED: "PAUSED",
    AlertCause.TASKS_PAUSED_BY_HAND: "PAUSED",
    AlertCause.HELD_WITHOUT_INSTANCE: "NOBODY",
    AlertCause.APPLICATION_SILENT: "NOBODY",
    AlertCause.TWO_CHECKPOINTS: "TWO_CHECKPOINTS",
    AlertCause.COMMANDS_UNANSWERED: "ISSUED",
    AlertCause.QUARANTINE: "QUARANTINED",
}


class Item(NamedTuple):
    """One entry of the list."""

    condition: Condition
    status: str

    @property
    def key(self) -> str:
        """The id of its row."""
        return "-".join(part for part in self.condition.key if part).replace(" ", "-")


class Attention(NamedTuple):
    """The items, the most urgent first."""

    items: tuple[Item, ...]

    @property
    def shown(self) -> list[Item]:
        """The first of them, of each application some."""
        return self.first(SHOWN)

    @property
    def more(self) -> int:
        """The number of further ones."""
        return max(0, len(self.items) - SHOWN)

    @property
    def more_of(self) -> list[tuple[str, int]]:
        """The applications with further ones, and their numbers, the largest first; an empty name
        is the server."""
        shown = Counter(each.condition.application for each in self.shown)
        every = Counter(each.condition.application for each in self.items)
        return (every - shown).most_common(MORE_OF)

    def first(self, most: int) -> list[Item]:
        """Return the first items: an application with very many hides none of the others."""
        return fair_shares.first(
            self.items, most, application=lambda each: each.condition.application
        )

    @property
    def worst(self) -> str:
        """The state of the most urgent one; empty if there is none."""
        return self.items[0].status if self.items else ""

    def count(self, cause: AlertCause) -> int:
        """Return the number of items with a cause."""
        return sum(each.condition.cause is cause for each in self.items)

    def of(self, application: str) -> Attention:
        """Return those of an application."""
        return Attention(
            tuple(each for each in self.items if each.condition.application == application)
        )


class Tile(NamedTuple):
    """A number of the overview with its link; `look` is the colour if it needs attention."""

    number: int
    label: str
    url: str
    icon: str = ""
    look: str = ""


def read(
    who: Person,
    *,
    now: datetime,
    overview: Overview | None = None,
    lags: Sequence[Lag] | None = None,
    health: Health | None = None,
    application: str | None = None,
) -> Attention:
    """Return what needs attention of what the person sees, or of one application; troubles of the
    server are for roles on all applications. `overview`, or `lags` and `health`, are what the
    caller has read."""
    threads = None
    if overview is not None:
        threads, lags, health = overview.threads, overview.lags, overview.health
    found = conditions.needing_attention(
        now=now, threads=threads, lags=lags, health=health, application=application
    )
    items = tuple(
        Item(each, _STATES.get(each.cause) or ("CRITICAL" if each.cause.critical else "WARNING"))
        for each in found
        if each.application or not who.confined
    )
    if application is None:
        _kept[who.seen] = _Kept(len(items), time.monotonic() + KEEP_SECONDS)
    return Attention(items)


class _Kept(NamedTuple):
    number: int
    until: float


#: The last totals, by the applications that are seen; None: all.
_kept: dict[frozenset[str] | None, _Kept] = {}


def current_total(
    who: Person, *, lags: Sequence[Lag] | None = None, health: Health | None = None
) -> int:
    """Return the number of items that the person sees, now or at most `KEEP_SECONDS` ago."""
    now = time.monotonic()
    for seen in [seen for seen, kept in [*_kept.items()] if kept.until <= now]:
        _kept.pop(seen, None)
    if kept := _kept.get(who.seen):
        return kept.number
    return len(read(who, now=timezone.now(), lags=lags, health=health).items)


def tiles(overview: Overview, attention: Attention, rate: Rate) -> list[Tile]:
    """Return the numbers of the overview; failures are those of the chart, in its time range."""
    applications, tasks = overview.applications, reverse("tasks")
    dead = sum(each.dead for each in applications)
    paused = sum(each.paused for each in applications)
    held = sum(each.held for each in applications)
    lost = sum(each.lost for each in applications)
    quarantined = sum(each.quarantined for each in overview.lags)
    pipelines = attention.count(AlertCause.PIPELINE_DEAD)
    instances = f"{reverse('instances')}?show=lost"
    commands = f"{reverse('commands')}?state={filters.OPEN}"
    quarantine = f"{reverse('quarantine')}?waiting=1"
    return [
        _tile(pipelines, "DEAD pipelines", reverse("pipelines"), "cross", "is-dead"),
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

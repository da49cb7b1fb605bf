"""The frame of every page, and the single function that renders a page or its refresh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from urllib.parse import unquote, urlsplit

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils import timezone

from arrester.controlplane import queries
from arrester.dashboard.permissions import POSITIONS, Person


class Section(NamedTuple):
    """A page of the menu: the name of its URL, its label, and its key after `g`."""

    name: str
    word: str
    key: str


#: The menu.
SECTIONS = (
    Section("overview", "Overview", "o"),
    Section("applications", "Applications", "a"),
    Section("tasks", "Tasks", "t"),
    Section("errors", "Errors", "e"),
    Section("commands", "Commands", "c"),
)
MORE = (
    Section("dead-letters", "Dead letters", "d"),
    Section("held", "Held records", "h"),
    Section("instances", "Instances", "i"),
    Section("audit", "Audit", "u"),
    Section("quarantine", "Quarantine", "q"),
    Section("settings", "Settings", "s"),
)
#: An older waiting batch is reported in a banner.
BEHIND_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """The result of an action, shown once above the page."""

    text: str
    url: str = ""
    link: str = ""
    bad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The identity of a page: its template, section and title, and the applications it shows."""

    template: str
    section: str
    title: str
    #: The page's own URL; the response to a POST contains it too.
    url: str
    #: Names separated by spaces; empty means all applications.
    shows: str = ""
    #: Whether it can change; a past state cannot.
    live: bool = True


def page(
    request: HttpRequest,
    who: Person,
    place: Place,
    context: dict[str, Any],
    *,
    notice: Notice | None = None,
    status: int = 200,
    lags: Sequence[queries.Lag] | None = None,
    health: queries.Health | None = None,
) -> HttpResponse:
    """Render the whole page, or for htmx its refreshed part, from the same templates.

    `lags` and `health` are passed if the page has already queried them.
    """
    lags = queries.lags() if lags is None else lags
    positions: dict[str, int] = request.META[POSITIONS]
    health = health or queries.health()
    shell = {
        "who": who,
        "now": timezone.now(),
        "place": place,
        "sections": SECTIONS,
        "more_sections": MORE,
        "elsewhere": next((each for each in MORE if each.name == place.section), None),
        "health": health,
        "positions": sorted(positions.items()),
        # One number that grows with every event of any application.
        "position": sum(positions.values()),
        "behind": _behind(lags),
        "too_old": max((lag for lag in lags if lag.too_old), key=_too_old, default=None),
        "queue_seconds": max((lag.waiting_seconds or 0.0 for lag in lags), default=0.0),
        "fold_seconds": max((lag.fold_seconds or 0.0 for lag in lags), default=0.0),
        "notices": [notice] if notice else [],
    }
    whole = "HX-Request" not in request.headers
    template = "dashboard/base.html" if whole else "dashboard/refresh.html"
    return render(request, template, shell | context, status=status)


def ask_as_before(request: HttpRequest, own: str) -> None:
    """Repeat the page's earlier query in the response of an action."""
    shown = urlsplit(request.headers.get("HX-Current-URL", ""))
    if request.method != "GET" and unquote(shown.path) == unquote(own):
        request.GET = cast(Any, QueryDict(shown.query))


def _behind(lags: Sequence[queries.Lag]) -> queries.Lag | None:
    worst = max(lags, key=lambda lag: lag.waiting_seconds or 0.0, default=None)
    if worst is None or (worst.waiting_seconds or 0.0) <= BEHIND_SECONDS:
        return None
    return worst


def _too_old(lag: queries.Lag) -> int:
    return lag.too_old

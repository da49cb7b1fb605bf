"""The frame of every page, and the single function that renders a page or its refresh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, cast
from urllib.parse import unquote, urlencode, urlsplit

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils import timezone

from arrester.controlplane import queries
from arrester.dashboard.permissions import POSITIONS, Person


class Section(NamedTuple):
    """A page of the menu: the name of its URL, its label, and its key after `g`."""

    name: str
    label: str
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


def page(
    request: HttpRequest,
    who: Person,
    section: str,
    context: dict[str, Any],
    *,
    template: str = "",
    title: str = "",
    url: str = "",
    shows: str = "",
    live: bool = True,
    notice: Notice | None = None,
    status: int = 200,
    lags: Sequence[queries.Lag] | None = None,
    health: queries.Health | None = None,
) -> HttpResponse:
    """Render the whole page, or for htmx its refreshed part, from the same templates.

    Args:
        section: the page of the menu; its template and title by default.
        url: the page's own URL; required in the response to a POST.
        shows: the names of the applications on the page, separated by spaces; empty for all.
        live: whether the page can change; a past state cannot.
        lags, health: if the page has already queried them.
    """
    lags = queries.lags() if lags is None else lags
    positions: dict[str, int] = request.META[POSITIONS]
    health = health or queries.health()
    shell = {
        "who": who,
        "now": timezone.now(),
        "place": {
            "template": f"dashboard/{template or section.replace('-', '_')}.html",
            "section": section,
            "title": title
            or next(each.label for each in (*SECTIONS, *MORE) if each.name == section),
            "url": url or request.get_full_path(),
            "shows": shows,
            "live": live,
        },
        "sections": SECTIONS,
        "more_sections": MORE,
        "chosen_of_more": next((each for each in MORE if each.name == section), None),
        "health": health,
        "positions": sorted(positions.items()),
        # One number that grows with every event of any application.
        "position": sum(positions.values()),
        "notices": [notice] if notice else [],
        **_lag_context(lags),
    }
    frame = "refresh" if "HX-Request" in request.headers else "base"
    return render(request, f"dashboard/{frame}.html", shell | context, status=status)


def restore_query(request: HttpRequest, own: str) -> None:
    """Restore the query of the page at `own` in the response of an action."""
    shown = urlsplit(request.headers.get("HX-Current-URL", ""))
    if request.method != "GET" and unquote(shown.path) == unquote(own):
        request.GET = cast(Any, QueryDict(shown.query))


def requested_as_of(request: HttpRequest) -> queries.AsOf | None:
    """Return the point of the past in the URL; None for now. Raises InvalidValue."""
    text = request.GET.get("as_of", "") if request.method == "GET" else ""
    return queries.as_of(text) if text else None


def as_of_context(when: queries.AsOf | None, *, application: str, url: str) -> dict[str, Any]:
    """Return the context of the form and the banner of a page whose current state is at `url`."""
    return {
        "when": when,
        "of": application,
        "now_url": url,
        # Links from here lead to the same point of the past.
        "then": f"?{urlencode({'as_of': str(when)})}" if when else "",
    }


def _lag_context(lags: Sequence[queries.Lag]) -> dict[str, Any]:
    """Return the context that shows how many events are not processed, and for how long."""
    too_old = [lag for lag in lags if lag.too_old]
    return {
        "behind": _largest_lag(lags),
        "too_old": max(too_old, key=attrgetter("too_old"), default=None),
        "queue_seconds": max((lag.waiting_seconds or 0.0 for lag in lags), default=0.0),
        "fold_seconds": max((lag.fold_seconds or 0.0 for lag in lags), default=0.0),
    }


def _largest_lag(lags: Sequence[queries.Lag]) -> queries.Lag | None:
    worst = max(lags, key=lambda lag: lag.waiting_seconds or 0.0, default=None)
    if worst is None or (worst.waiting_seconds or 0.0) <= BEHIND_SECONDS:
        return None
    return worst

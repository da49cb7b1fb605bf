"""The frame of every page, and the single function that renders a page or its refresh."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, cast
from urllib.parse import SplitResult, unquote, urlencode, urlsplit

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils import timezone

from arrester.controlplane import queries
from arrester.dashboard.http_errors import status_code
from arrester.dashboard.permissions import LOG_POSITIONS, Person
from arrester.domain.errors import BeforeHistory, InvalidValue, NotFound


class Section(NamedTuple):
    """A page of the menu: the name of its URL, its label, and its key after `g`."""

    name: str
    label: str
    key: str


#: The menu.
SECTIONS = (
    Section("overview", "Overview", "o"),
    Section("pipelines", "Pipelines", "p"),
    Section("applications", "Applications", "a"),
    Section("tasks", "Tasks", "t"),
    Section("errors", "Errors", "e"),
    Section("commands", "Commands", "c"),
)
MORE = (
    Section("dead-letters", "Dead letters", "d"),
    Section("held", "Held records", "h"),
    Section("instances", "Instances", "i"),
    Section("alerts", "Alerts", "l"),
    Section("audit", "Audit", "u"),
    Section("quarantine", "Quarantine", "q"),
    Section("settings", "Settings", "s"),
)
#: Where a request keeps why there is no state of the requested point of the past.
AS_OF_ERROR = "arrester.as_of_error"
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
    log_positions: dict[str, int] = request.META[LOG_POSITIONS]
    health = health or queries.health()
    as_of = _as_of_menu(request, has_past="now_url" in context)
    shell = as_of | {
        "who": who,
        "now": timezone.now(),
        "place": {
            "template": f"dashboard/{template or section.replace('-', '_')}.html",
            "section": section,
            "title": title
            or next(each.label for each in (*SECTIONS, *MORE) if each.name == section),
            "url": url or (request.path if as_of["as_of_error"] else request.get_full_path()),
            "shows": shows,
            "live": live,
        },
        "sections": SECTIONS,
        "more_sections": MORE,
        "chosen_of_more": next((each for each in MORE if each.name == section), None),
        "health": health,
        "lags": lags,
        "log_positions": sorted(log_positions.items()),
        # One number that grows with every event of any application.
        "log_position": sum(log_positions.values()),
        "notices": [notice] if notice else [],
        **_lag_context(lags),
    }
    frame = "refresh" if "HX-Request" in request.headers else "base"
    return render(request, f"dashboard/{frame}.html", shell | context, status=status)


def is_shown(request: HttpRequest, own: str) -> bool:
    """Whether the browser shows the page at `own`."""
    return unquote(_shown(request).path) == unquote(own)


def restore_query(request: HttpRequest, own: str) -> None:
    """Restore the query of the page at `own` in the response of an action."""
    if request.method != "GET" and is_shown(request, own):
        request.GET = cast(Any, QueryDict(_shown(request).query))


def _shown(request: HttpRequest) -> SplitResult:
    return urlsplit(request.headers.get("HX-Current-URL", ""))


def now_or_then(
    request: HttpRequest,
    now: Callable[..., HttpResponse],
    then: Callable[[queries.AsOf], HttpResponse],
) -> HttpResponse:
    """Render a page as of the point in the URL; without one, `now`.

    If there is no state of that point, the reason is shown beside the field, above the page of now.
    """
    text = request.GET.get("as_of", "")
    if not text:
        return now()
    try:
        return then(queries.as_of(text))
    except (BeforeHistory, InvalidValue, NotFound) as error:
        if isinstance(error, InvalidValue) and error.name != "as_of":
            raise
        request.META[AS_OF_ERROR] = str(error)
        return now(status=status_code(error))


def as_of_context(when: queries.AsOf | None, *, application: str, url: str) -> dict[str, Any]:
    """Return the context of the form and the banner of a page whose current state is at `url`."""
    if when and when.before_last_command:
        when = queries.AsOf(position=queries.log_position(application, when))
    return {
        "when": when,
        "of": application,
        "now_url": url,
        # Links from here lead to the same point of the past.
        "then": f"?{urlencode({'as_of': str(when)})}" if when else "",
    }


def _as_of_menu(request: HttpRequest, *, has_past: bool) -> dict[str, Any]:
    """Return the context of the menu in the header."""
    text = request.GET.get("as_of", "")
    error = request.META.get(AS_OF_ERROR, "")
    if text and not has_past:
        error = "This page has no earlier states. It shows the current state."
    return {"as_of_text": text, "as_of_error": error}


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

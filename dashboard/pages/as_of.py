"""Pages as of the past: an application, or an error group, at a time or position."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from arrester.controlplane import queries
from arrester.dashboard.components import task_grid
from arrester.dashboard.page_frame import Place, page
from arrester.dashboard.permissions import Person
from arrester.dashboard.text import record_text


def asked(request: HttpRequest) -> queries.AsOf | None:
    """Return the point of the past in the URL; None for now. Raises InvalidValue."""
    text = request.GET.get("as_of", "") if request.method == "GET" else ""
    return queries.as_of(text) if text else None


def shown(when: queries.AsOf | None, *, application: str, url: str) -> dict[str, Any]:
    """Return the context of the form and the banner of a page whose current state is at `url`."""
    return {
        "when": when,
        "of": application,
        "now_url": url,
        # Links from here lead to the same point of the past.
        "then": f"?{urlencode({'as_of': str(when)})}" if when else "",
    }


def application(request: HttpRequest, who: Person, name: str, when: queries.AsOf) -> HttpResponse:
    """Render an application as of then: its tasks and live instances."""
    own, then = (
        reverse("application", args=[name]),
        queries.as_of_state.whole(name, when, tasks=task_grid.CELLS),
    )
    place = Place(
        template="dashboard/application_as_of.html",
        section="applications",
        title=name,
        url=request.get_full_path(),
        shows=name,
        live=False,
    )
    context = shown(when, application=name, url=own) | {
        "summary": then.summary,
        "own": own,
        "parts": task_grid.parts_then(then.pipelines),
        "wanted": task_grid.asked("", "", ""),
        "instances": then.instances,
    }
    return page(request, who, place, context)


def error(
    request: HttpRequest, who: Person, application: str, fingerprint: str, when: queries.AsOf
) -> HttpResponse:
    """Render an error group as of then, with the number of stopped tasks."""
    detail = queries.as_of_state.group(application, fingerprint, when)
    place = Place(
        template="dashboard/error_as_of.html",
        section="errors",
        title=detail.state.exception_class,
        url=request.get_full_path(),
        shows=application,
        live=False,
    )
    url = reverse("error", args=[application, fingerprint])
    context = shown(when, application=application, url=url) | record_text.shown(detail.example)
    context |= {"group": detail.state, "example": detail.example, "stopped": detail.stopped}
    return page(request, who, place, context)

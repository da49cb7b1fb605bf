"""Failed records by cause: the list of error groups, and one group with its occurrences."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from controlplane import queries
from controlplane.columns import MOST
from controlplane.domain.errors import InvalidValue, NotFound
from controlplane.domain.events import RecordFailed, StoredEvent
from controlplane.queries import GroupDetail
from dashboard import rates, record
from dashboard.people import Person, for_people
from dashboard.shell import Place, page

RECENT = 20
DIGITS = len(str(MOST))


@for_people
def errors(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the error groups, filtered by the URL."""
    asked = {name: request.GET.get(name, "") for name in ("application", "text")}
    place = Place(
        template="dashboard/errors.html",
        section="errors",
        title="Errors",
        url=request.get_full_path(),
        shows=asked["application"],
    )
    groups = queries.groups(
        asked["application"] or None,
        text=asked["text"] or None,
        cursor=request.GET.get("after"),
    )
    stopped = queries.stopped_by_group(groups.rows)
    context = {
        "asked": asked,
        "names": sorted(queries.positions()),
        "groups": [
            (each, stopped.get((each.application, each.fingerprint), 0)) for each in groups.rows
        ],
        "next": groups.next,
    }
    return page(request, who, place, context)


@for_people
def error(request: HttpRequest, who: Person, application: str, fingerprint: str) -> HttpResponse:
    """Show one error group: its newest example or the occurrence that `at` names."""
    group = queries.group(application, fingerprint)
    example = _example(request, group)
    place = Place(
        template="dashboard/error.html",
        section="errors",
        title=group.state.exception_class,
        url=request.get_full_path(),
        shows=application,
    )
    context = record.shown(example) | {
        "group": group.state,
        "stopped": group.stopped,
        "example": example,
        "neighbours": queries.neighbours(example) if example else None,
        "occurrences": queries.group_occurrences(
            application, fingerprint, cursor=request.GET.get("after"), limit=RECENT
        ),
        "chart": rates.of_application(application, now=timezone.now(), fingerprint=fingerprint),
    }
    return page(request, who, place, context)


def _example(request: HttpRequest, group: GroupDetail) -> StoredEvent | None:
    """Return the occurrence that the URL names, or the newest one that was told in full."""
    text = request.GET.get("at")
    if text is None:
        return group.example
    # More digits than these no position has, and Python reads no number of thousands of them.
    if not text.isdecimal() or len(text) > DIGITS or int(text) > MOST:
        raise InvalidValue("at", text, f"the position of an event, a whole number up to {MOST}")
    found = queries.event(group.state.application, int(text))
    told = found.event.data
    if not isinstance(told, RecordFailed) or told.failure.fingerprint != group.state.fingerprint:
        raise NotFound(f"there is no failure of this group at {group.state.application} @ {text}")
    return found

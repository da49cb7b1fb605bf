"""Failed records by cause: the list of error groups, and one group by tabs."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from arrester.controlplane import queries
from arrester.controlplane.domain.errors import InvalidValue, NotFound
from arrester.controlplane.domain.events import RecordFailed, StoredEvent
from arrester.controlplane.domain.identity import fingerprint as causes
from arrester.controlplane.domain.identity.uuids import uuid7
from arrester.controlplane.domain.state.states import GroupState, GroupStatus
from arrester.controlplane.queries import GroupDetail
from arrester.controlplane.store.column_limits import MOST
from arrester.dashboard.components import failure_rates, filters, group_buttons, time_range
from arrester.dashboard.page_frame import Notice, Place, ask_as_before, page
from arrester.dashboard.pages import as_of
from arrester.dashboard.permissions import Person, for_people
from arrester.dashboard.rest import issue_export
from arrester.dashboard.text import record_text

RECENT = 20
DIGITS = len(str(MOST))
TABS = {
    "trace": "Trace",
    "record": "Record",
    "tasks": "Affected tasks",
    "why": "Why grouped",
    "notes": "Notes and history",
}


class Choice(NamedTuple):
    """A state to filter by, and its number of groups."""

    value: str
    word: str
    number: int
    chosen: bool


@for_people
def errors(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the error groups, filtered by the URL."""
    return show_all(request, who)


def show_all(request: HttpRequest, who: Person, *, notice: Notice | None = None) -> HttpResponse:
    """Render the list with its filter, after an action with its result."""
    own = reverse("errors")
    ask_as_before(request, own)
    now = timezone.now()
    wanted = filters.of_groups(request.GET, now=now)
    sort = filters.sort_of_groups(request.GET)
    place = Place(
        template="dashboard/errors.html",
        section="errors",
        title="Errors",
        url=f"{own}?{request.GET.urlencode()}" if request.GET else own,
        shows=wanted.application or "",
    )
    groups = queries.groups(wanted, sort=sort, cursor=request.GET.get("after"))
    stopped = queries.stopped_by_group(groups.rows)
    counts = queries.group_counts(wanted)
    total = counts[wanted.state] if wanted.state else counts.total()
    context = filters.form(request.GET, filters.GROUP_FIELDS) | {
        "acts": group_buttons.on_many(wanted.state),
        "states": _choices(wanted, counts),
        "shown_state": wanted.state or "there",
        "total": total,
        "elsewhere_count": counts.total() - total,
        "stages": queries.stages(wanted.application),
        "range": time_range.read(request.GET, now=now),
        "sort": sort,
        "groups": [
            (each, stopped.get((each.application, each.fingerprint), 0)) for each in groups.rows
        ],
        "sparks": failure_rates.sparks_of_groups(groups.rows, now=now),
        "next": groups.next,
    }
    return page(request, who, place, context, notice=notice)


def _choices(wanted: queries.GroupFilter, counts: dict[str, int]) -> list[Choice]:
    every = sum(counts.values())
    found = [
        Choice(each.value, each.value.capitalize(), counts[each.value], wanted.state == each.value)
        for each in GroupStatus
    ]
    return [*found, Choice(filters.ALL, "All", every, wanted.state is None)]


@for_people
def error(request: HttpRequest, who: Person, application: str, fingerprint: str) -> HttpResponse:
    """Show one error group with its newest example, or the occurrence `at`; now or in the past."""
    when = as_of.asked(request)
    if when:
        return as_of.error(request, who, application, fingerprint, when)
    return show(request, who, application, fingerprint)


def show(
    request: HttpRequest,
    who: Person,
    application: str,
    fingerprint: str,
    *,
    tab: str = "",
    notice: Notice | None = None,
    status: int = 200,
) -> HttpResponse:
    """Render the group's page, after an action with its result."""
    tab = tab or request.GET.get("tab") or "trace"
    if tab not in TABS:
        raise InvalidValue("tab", tab, ", ".join(TABS))
    group = queries.group(application, fingerprint)
    example = _example(request, group)
    url = reverse("error", args=[application, fingerprint])
    place = Place(
        template="dashboard/error.html",
        section="errors",
        title=group.state.exception_class,
        url=request.get_full_path() if request.method == "GET" else f"{url}?tab={tab}",
        shows=application,
    )
    context = record_text.shown(example) | {
        "group": group.state,
        "stopped": group.stopped,
        "paused": [each for each in group.stopped if each.status == "PAUSED"],
        "example": example,
        "neighbours": queries.neighbours(example) if example else None,
        "occurrences": queries.group_occurrences(
            application, fingerprint, cursor=request.GET.get("after"), limit=RECENT
        ),
        "rate": failure_rates.rate(
            failure_rates.span(request.GET, now=timezone.now()),
            application=application,
            fingerprint=fingerprint,
        ),
        "buttons": group_buttons.buttons(who, group.state),
        "copies": issue_export.copies(
            group.state,
            example,
            page=request.build_absolute_uri(url),
            rest=request.build_absolute_uri(reverse("api-error", args=[application, fingerprint])),
        ),
        "tabs": [(name, word, f"{url}?{_kept(request, tab=name)}") for name, word in TABS.items()],
        "tab": tab,
        "note_id": uuid7(timezone.now()),
    }
    context |= as_of.shown(None, application=application, url=url)
    return page(
        request, who, place, context | _of_tab(tab, group.state), notice=notice, status=status
    )


def _kept(request: HttpRequest, *, tab: str) -> str:
    kept = request.GET.copy()
    kept["tab"] = tab
    kept.pop("after", None)
    return kept.urlencode()


def _of_tab(tab: str, group: GroupState) -> dict[str, Any]:
    """Return the context of one tab."""
    match tab:
        case "tasks":
            return {"affected": queries.affected(group.application, group.fingerprint)}
        case "notes":
            history = queries.group_history(group.application, group.fingerprint, limit=100)
            return {"history": history}
        case "why":
            version, _, digest = group.fingerprint.partition("-")
            return {
                "algorithm": version,
                "digest": digest,
                "known_algorithm": version == str(causes.VERSION),
                "normalised": causes.normalised(group.message),
            }
    return {}


def _example(request: HttpRequest, group: GroupDetail) -> StoredEvent | None:
    """Return the occurrence of the URL, or the newest one that was reported in full."""
    text = request.GET.get("at")
    if text is None:
        return group.example
    # No position has more digits, and Python refuses to read very long numbers.
    if not text.isdecimal() or len(text) > DIGITS or int(text) > MOST:
        raise InvalidValue("at", text, f"the position of an event, a whole number up to {MOST}")
    found = queries.event(group.state.application, int(text))
    told = found.event.data
    if not isinstance(told, RecordFailed) or told.failure.fingerprint != group.state.fingerprint:
        raise NotFound(f"there is no failure of this group at {group.state.application} @ {text}")
    return found

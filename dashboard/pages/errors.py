"""Failed records by cause: the list of error groups, and one group by tabs."""

from __future__ import annotations

import json
import shlex
from functools import partial
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode

from arrester.controlplane import queries
from arrester.controlplane.queries import GroupDetail
from arrester.controlplane.store.column_values import MAX_BIGINT
from arrester.dashboard.components import buttons, filters, saved_filters, time_range
from arrester.dashboard.components.charts import failure_rates
from arrester.dashboard.page_frame import (
    Notice,
    as_of_context,
    now_or_then,
    page,
    restore_query,
)
from arrester.dashboard.permissions import NOT_AN_OPERATOR, Person, for_people
from arrester.dashboard.rest.resources.error_groups import ErrorGroupSerializer
from arrester.dashboard.text import issue_markdown, record_text
from arrester.domain import failure_text
from arrester.domain.errors import InvalidValue, NotFound
from arrester.domain.events import RecordFailed, StoredEvent
from arrester.domain.identity import fingerprint as fingerprints
from arrester.domain.identity.uuids import uuid7
from arrester.domain.state import error_groups
from arrester.domain.state.states import GroupState, GroupStatus, TaskStatus, if_set

RECENT = 20
_VERSIONS = {str(fingerprints.WITHOUT_CAUSE), str(fingerprints.VERSION)}
DIGITS = len(str(MAX_BIGINT))
TABS = {
    "trace": "Stack trace",
    "record": "Record",
    "fields": "Field values",
    "tasks": "Affected tasks",
    "why": "Grouping",
    "notes": "Notes and history",
}


class StateChoice(NamedTuple):
    """A state to filter by, and its number of groups."""

    value: str
    label: str
    number: int
    chosen: bool


@for_people
def errors(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the error groups, filtered by the URL."""
    return show_all(request, who)


def show_all(request: HttpRequest, who: Person, *, notice: Notice | None = None) -> HttpResponse:
    """Render the list with its filter, after an action with its result."""
    own = reverse("errors")
    restore_query(request, own)
    now = timezone.now()
    wanted = filters.of_groups(request.GET, now=now)
    sort = filters.sort_of_groups(request.GET)
    groups = queries.groups(wanted, sort=sort, cursor=request.GET.get("after"))
    stopped = queries.stopped_by_group(groups.rows)
    counts = queries.group_counts(wanted)
    total = counts[wanted.status] if wanted.status else counts.total()
    owners = queries.owners()
    context = filters.form(request.GET, filters.GROUP_FIELDS) | {
        "acts": buttons.for_groups(wanted.status),
        "states": _choices(wanted, counts),
        "shown_state": wanted.status,
        "total": total,
        "elsewhere_count": counts.total() - total,
        "stages": queries.stages(wanted.application),
        "range": time_range.read(request.GET, now=now),
        "sort": sort,
        "groups": [
            (each, stopped.get((each.application, each.fingerprint), 0), owners.of_group(each))
            for each in groups.rows
        ],
        "owners": sorted({who.name, *(each.owner for each in owners.rules)}),
        "sparks": failure_rates.sparks_of_groups(groups.rows, now=now),
        "next": groups.next,
        "saved": saved_filters.menu(request, who, "errors"),
    }
    url = f"{own}?{request.GET.urlencode()}" if request.GET else own
    shows = wanted.application or ""
    return page(request, who, "errors", context, url=url, shows=shows, notice=notice)


def _choices(wanted: queries.GroupFilter, counts: dict[str, int]) -> list[StateChoice]:
    total = sum(counts.values())
    choices = [
        StateChoice(
            each.value, each.value.capitalize(), counts[each.value], wanted.status == each.value
        )
        for each in GroupStatus
    ]
    return [*choices, StateChoice(filters.ALL, "All", total, wanted.status is None)]


@for_people
def error(request: HttpRequest, who: Person, application: str, fingerprint: str) -> HttpResponse:
    """Show one error group with its newest example, or the occurrence `at`; now or in the past."""
    return now_or_then(
        request,
        partial(show, request, who, application, fingerprint),
        partial(_show_past, request, who, application, fingerprint),
    )


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
    url = reverse("error", args=[application, fingerprint])
    context = _group_context(request, who, group, url=url) | {
        "tabs": [
            (name, word, f"{url}?{_tab_query(request, tab=name)}") for name, word in TABS.items()
        ],
        "tab": tab,
        "release": queries.first_release(application, group.state.first_seen),
    }
    return page(
        request,
        who,
        "errors",
        context | _of_tab(tab, group.state, request.GET),
        template="error",
        title=failure_text.title(group.state),
        url="" if request.method == "GET" else f"{url}?tab={tab}",
        shows=application,
        notice=notice,
        status=status,
    )


def _group_context(
    request: HttpRequest, who: Person, group: GroupDetail, *, url: str
) -> dict[str, Any]:
    """Return the context of all tabs: the group, its shown occurrence, and its failure rate."""
    state, now = group.state, timezone.now()
    application, fingerprint = state.application, state.fingerprint
    paused = any(each.status is TaskStatus.PAUSED for each in group.stopped)
    example, span = _example(request, group), time_range.span(request.GET, now=now)
    api_url = request.build_absolute_uri(reverse("api-error", args=[application, fingerprint]))
    return {
        **record_text.context(example),
        "code": record_text.code_lines(group.source),
        "group": state,
        **_owner_context(state),
        "earlier": group.earlier,
        "parts": group.parts,
        "stopped": group.stopped,
        "stopped_total": group.stopped_total,
        "paused": paused,
        "rollout_disabled": "" if who.may_act_on(application) else NOT_AN_OPERATOR,
        "resume_disabled": buttons.resume_many(who, application, fingerprint) if paused else "",
        "example": example,
        "ends": group.ends,
        "neighbours": queries.neighbours(example) if example else None,
        "occurrences": queries.failures(
            queries.FailureFilter(application=application, fingerprint=fingerprint),
            cursor=request.GET.get("after"),
            limit=RECENT,
        ),
        "rate": failure_rates.rate(span, application=application, fingerprint=fingerprint),
        "export_query": urlencode(
            {
                "application": application,
                "fingerprint": fingerprint,
                "from": span.start.isoformat(),
                "to": span.end.isoformat(),
            }
        ),
        "buttons": buttons.for_group(who, state),
        "markdown": issue_markdown.markdown(state, example, request.build_absolute_uri(url)),
        "curl": f'curl -H "Authorization: Token $ARRESTER_TOKEN" {shlex.quote(api_url)}',
        "note_id": uuid7(now),
        **as_of_context(None, application=application, url=url),
    }


def _owner_context(group: GroupState) -> dict[str, Any]:
    """Return the context of the owner of an error group, and the group as REST has it."""
    owners = queries.owners()
    serializer = ErrorGroupSerializer(group, context={"owners": owners})
    assigned = if_set(group.assignee)
    rule = None if assigned else owners.rule_of(group.application, group.pipeline, group.stage)
    return {
        "owner": owners.of_group(group),
        "owner_rule": rule,
        "json": json.dumps(serializer.data, indent=2, ensure_ascii=False),
    }


def _show_past(
    request: HttpRequest, who: Person, application: str, fingerprint: str, when: queries.AsOf
) -> HttpResponse:
    """Render an error group as of then, with the tasks that it had stopped."""
    detail = queries.as_of_state.group(application, fingerprint, when)
    url = reverse("error", args=[application, fingerprint])
    context = as_of_context(when, application=application, url=url)
    context |= record_text.context(detail.example)
    context |= {
        "group": detail.state,
        "example": detail.example,
        "stopped": detail.stopped,
        "stopped_total": detail.stopped_total,
    }
    return page(
        request,
        who,
        "errors",
        context,
        template="error_as_of",
        title=failure_text.title(detail.state),
        shows=application,
        live=False,
    )


def _tab_query(request: HttpRequest, *, tab: str) -> str:
    query = request.GET.copy()
    query["tab"] = tab
    query.pop("after", None)
    return query.urlencode()


def _of_tab(tab: str, group: GroupState, query: QueryDict) -> dict[str, Any]:
    """Return the context of one tab."""
    match tab:
        case "tasks":
            live = filters.live_only(query)
            return {
                "affected": queries.affected(group.application, group.fingerprint, live=live),
                "checkpoints": queries.checkpoints([group.application]),
            }
        case "fields":
            return {"statistics": queries.group_fields(group.application, group.fingerprint)}
        case "notes":
            history = queries.group_history(group.application, group.fingerprint, limit=100)
            return {"history": history}
        case "why":
            version, _, digest = group.fingerprint.partition("-")
            return {
                "algorithm": version,
                "digest": digest,
                "known_algorithm": version in _VERSIONS,
                "normalised": fingerprints.normalised(group.message),
            }
    return {}


def _example(request: HttpRequest, group: GroupDetail) -> StoredEvent | None:
    """Return the occurrence of the URL, or the newest one that was reported in full."""
    text = request.GET.get("at")
    if text is None:
        return group.example
    # No position has more digits, and Python refuses to read very long numbers.
    if not text.isdecimal() or len(text) > DIGITS or int(text) > MAX_BIGINT:
        raise InvalidValue(
            "at", text, f"the log position of an event, a whole number up to {MAX_BIGINT}"
        )
    stored = queries.event(group.state.application, int(text))
    data = stored.event.data
    failure = data.failure if isinstance(data, RecordFailed) else error_groups.recordless(data)
    if failure is None or failure.fingerprint != group.state.fingerprint:
        raise NotFound(f"there is no failure of this group at {group.state.application} @ {text}")
    return stored

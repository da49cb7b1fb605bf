"""Dead letters: the list, totals by cause and by task, one of them, and those of one event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from msgspec.structs import replace

from arrester.controlplane import actions, dead_letter_records, queries
from arrester.dashboard.components import filters, saved_filters
from arrester.dashboard.components.editable_records import editable
from arrester.dashboard.page_frame import Notice, page, restore_query
from arrester.dashboard.permissions import Person, for_people
from arrester.dashboard.text import command_links, record_text
from arrester.domain.errors import InvalidValue, NotFound
from arrester.domain.events import RecordsDeadLettered
from arrester.domain.identity.names import task_id

RECORDS, CAUSES, TASKS = "records", "causes", "tasks"
#: The forms of the list, by the parameter `view`.
LIST_FORMS = {RECORDS: "Records", CAUSES: "By cause", TASKS: "By task"}
_TOTALS = {CAUSES: "group", TASKS: "task"}


@for_people
def dead_letters(request: HttpRequest, who: Person) -> HttpResponse:
    """Show dead letters, newest first, or their totals; filtered by the URL."""
    return show_all(request, who)


def show_all(request: HttpRequest, who: Person, *, notice: Notice | None = None) -> HttpResponse:
    """Render the list with its filter, after an action with its result."""
    own = reverse("dead-letters")
    restore_query(request, own)
    view = request.GET.get("view") or RECORDS
    if view not in LIST_FORMS:
        raise InvalidValue("view", view, ", ".join(LIST_FORMS))
    wanted = filters.of_dead_letters(request.GET, now=timezone.now())
    cursor = request.GET.get("after")
    if wanted.exception_class is not None:
        queries.check_class(wanted.exception_class)
    # Totals are of all times and statuses.
    always = replace(wanted, since=None, until=None, status=None)
    form = filters.form(request.GET, filters.DEAD_LETTER_FIELDS)
    chosen = {name: value for name, value in form["requested"].items() if name != "view"}
    context = form | {
        "view": view,
        "views": LIST_FORMS.items(),
        "stages": queries.stages(),
        "owners": queries.owners(),
        "task": queries.task(wanted.task).state if wanted.task else None,
        "filtered": any(chosen.values()),
        "total": queries.count_dead_letters(wanted if view == RECORDS else always),
        "statuses": queries.DEAD_LETTER_STATUSES,
        "saved": saved_filters.menu(request, who, "dead-letters"),
        "found": queries.dead_letters(wanted, cursor=cursor)
        if view == RECORDS
        else queries.dead_letter_totals(always, by=_TOTALS[view], cursor=cursor),
    }
    listed = context["found"].rows if view == RECORDS else []
    context["rows"] = _with_refusals(who, listed)
    if listed and wanted.application and who.may_act_on(wanted.application):
        context["no_redrive"] = actions.no_redrive(wanted.application, wanted.pipeline)
    url = f"{own}?{request.GET.urlencode()}" if request.GET else own
    shows = wanted.application or ""
    return page(request, who, "dead-letters", context, url=url, shows=shows, notice=notice)


class _Row(NamedTuple):
    """A row of the list: what a redrive of it needs to be alike, and why none is possible now."""

    found: queries.DeadLetter
    place: str
    no_redrive: str


def _with_refusals(who: Person, rows: Sequence[queries.DeadLetter]) -> list[_Row]:
    selectable = {each.task for each in rows if each.open and who.may_act_on(each.application)}
    refused = actions.refused_redrives(selectable)
    return [
        _Row(
            each,
            place="\n".join([each.application, each.task.pipeline, each.task.checkpoint]),
            no_redrive=command_links.without_id(refused.get(each.task, "")),
        )
        for each in rows
    ]


@for_people
def dead_letter(request: HttpRequest, who: Person, application: str, id: str) -> HttpResponse:
    """Show one dead letter, with its record if the log has it."""
    one = queries.dead_letter(application, id)
    failure = queries.failure_of_dead_letter(one)
    first = queries.first_failure_of_dead_letter(one)
    context: dict[str, Any] = {"found": one, "failure": failure, "first": first}
    context["discard"] = queries.discard_of(one)
    context["owner"] = queries.owners().of(application, one.task.pipeline, one.group)
    if one.open and who.may_act_on(application):
        context |= _refusals(one)
    if failure is None:
        context |= _record(one)
    else:
        context["shown"] = record_text.context(failure)
    return page(request, who, "dead-letters", context, template="dead_letter", shows=application)


def _refusals(one: queries.DeadLetter) -> dict[str, str]:
    """Return why the record cannot be redriven, and why it cannot be edited; empty: it can."""
    wanted = queries.DeadLetterFilter()
    redrive = actions.plan_redrive(one.application, wanted, ids=[one.id]).refused or ""
    return {"no_redrive": redrive, "no_edit": redrive or editable(one).refusal}


@for_people
def dead_letter_record(
    request: HttpRequest, who: Person, application: str, id: str
) -> HttpResponse:
    """Return the part of the page with the record that a worker reads."""
    one = queries.dead_letter(application, id)
    context = {"found": one, **_record(one)}
    return render(request, "dashboard/dead_letter_record.html", context)


def _record(one: queries.DeadLetter) -> dict[str, Any]:
    """Return the context of the record; a worker reads it on the first call."""
    record = dead_letter_records.request(one)
    return {
        "record": record,
        **(record_text.of_body(record.body, redacted=record_text.SERVER) if record.body else {}),
    }


@for_people
def dead_letter_event(
    request: HttpRequest, who: Person, application: str, sequence: int
) -> HttpResponse:
    """Show one entry: its destination, and the records that were reported in full."""
    stored = queries.event(application, sequence)
    run, data = stored.event.run, stored.event.data
    if not isinstance(data, RecordsDeadLettered) or run is None:
        raise NotFound(f"there are no dead letters at {application} @ {sequence}")
    task = task_id(application, run, data.task)
    examples = queries.examples(stored, task.digest)
    context = {
        "stored": stored,
        "dead_letters": data,
        "task": task,
        "examples": [(each, record_text.context(each)) for each in examples],
        "counted_only": max(0, data.count - len(examples)),
    }
    return page(
        request, who, "dead-letters", context, template="dead_letter_event", shows=application
    )

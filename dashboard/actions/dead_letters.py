"""Discard dead letters: the selected ones, or all that wait and match the filter of the list."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import partial

from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import access, actions, queries
from arrester.dashboard.components import filters, forms
from arrester.dashboard.page_frame import Notice
from arrester.dashboard.pages import dead_letters
from arrester.dashboard.permissions import Person, for_operators
from arrester.domain.errors import InvalidValue
from arrester.domain.identity import uuids


@require_GET
@for_operators
def discard_dialog(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the dialog with the number of dead letters."""
    return _dialog(request, request.GET)


def _dialog(request: HttpRequest, given: QueryDict, *, invalid: str = "") -> HttpResponse:
    context = {"most": actions.MAX_DISCARDED, "invalid": invalid}
    if selected := given.getlist("record"):
        by_application = _selected(selected)
        number = sum(map(len, by_application.values()))
        plans = [
            actions.plan_discard(application, ids=ids)
            for application, ids in sorted(by_application.items())
        ]
        context |= {"selected": selected, "number": number, "names": sorted(by_application)}
    else:
        wanted, fields = filters.of_known_dead_letters(given, now=timezone.now())
        _check_application(wanted)
        plans = [actions.plan_discard(wanted.application or "", wanted=wanted)]
        context |= {
            "fields": list(fields.items()),
            "number": plans[0].discarded,
            "more": plans[0].more,
            "names": [wanted.application],
        }
    context["afterwards"] = " ".join(each.afterwards for each in plans if each.afterwards)
    return forms.dialog(request, "discard", context)


@require_POST
@for_operators
def discard(request: HttpRequest, who: Person) -> HttpResponse:
    """Discard the dead letters of the dialog, and report their number."""
    id, reason = forms.act_id(request), forms.reason(request)
    selected = request.POST.getlist("record")
    # The role is checked before the dialog is shown again.
    wanted = None if selected else filters.of_dead_letters(request.POST, now=timezone.now())
    if wanted is not None:
        _check_application(wanted)
    by_application: Mapping[str, list[str]] = _selected(selected) if selected else {}
    if reason is None:
        return _dialog(request, request.POST, invalid=forms.REASON_REQUIRED)
    if wanted is not None:
        number = queries.count_open_dead_letters(wanted, limit=actions.MAX_DISCARDED)
        try:
            filters.refuse_more_dead_letters(request.POST, number)
        except InvalidValue as error:
            return _dialog(request, request.POST, invalid=f"{error}.")
    act = partial(actions.discard_dead_letters, actor=who.name, reason=reason)
    if wanted is not None and wanted.application is not None:
        done = [act(wanted.application, wanted=wanted, id=id)]
    else:
        done = [
            act(application, ids=ids, id=uuids.part_of(id, application))
            for application, ids in sorted(by_application.items())
        ]
    show = partial(dead_letters.show_all, request, who, notice=_notice(done))
    return forms.page_after(request, show, redirect_to=reverse("dead-letters"))


def _check_application(wanted: queries.DeadLetterFilter) -> None:
    """Raise unless the filter has an application on which the person may act."""
    if wanted.application is None:
        raise InvalidValue("application", "", "one application: choose it in the filter")
    access.require(wanted.application)


def _selected(selected: list[str]) -> dict[str, list[str]]:
    """Return the selected ids by application, on each of which the person may act."""
    if len(selected) > actions.MAX_IDS:
        raise InvalidValue("record", len(selected), f"1 to {actions.MAX_IDS:,} dead letters")
    found: dict[str, list[str]] = defaultdict(list)
    for each in selected:
        application, _, id = each.partition("/")
        found[application].append(id)
    for application in found:
        access.require(application)
    return found


def _notice(done: list[actions.Discarded]) -> Notice:
    discarded, unchanged = sum(each.discarded for each in done), sum(e.unchanged for e in done)
    text = f"{discarded:,} {'dead letter' if discarded == 1 else 'dead letters'} discarded."
    if unchanged:
        text += f" {unchanged:,} unchanged: only those that wait are discarded."
    if any(each.more for each in done):
        text += " There are more: discard once more."
    return Notice(text=text, bad=bool(unchanged))

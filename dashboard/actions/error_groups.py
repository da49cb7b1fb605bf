"""Acts on one error group or on several: resolve, reopen, mute, unmute, assign; notes."""

from __future__ import annotations

from collections import Counter
from functools import partial

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import access, actions, queries
from arrester.dashboard.components import forms
from arrester.dashboard.components.buttons import BULK
from arrester.dashboard.page_frame import Notice
from arrester.dashboard.pages import errors
from arrester.dashboard.permissions import Person, for_operators
from arrester.domain.errors import InvalidValue
from arrester.domain.state.error_groups import GroupAct, GroupRequest
from arrester.domain.state.states import if_set


@require_POST
@for_operators
def act(
    request: HttpRequest, who: Person, application: str, verb: str, fingerprint: str
) -> HttpResponse:
    """Resolve, reopen or unmute a group."""
    requested = _request(request, who, GroupAct(verb.upper()), fingerprint)
    return _act_and_show(request, who, application, requested)


@require_GET
@for_operators
def mute_dialog(
    request: HttpRequest, who: Person, application: str, fingerprint: str
) -> HttpResponse:
    """Show the dialog to mute a group."""
    return _mute_dialog(request, application, fingerprint)


def _mute_dialog(
    request: HttpRequest, application: str, fingerprint: str, *, invalid: str = ""
) -> HttpResponse:
    group = queries.group(application, fingerprint).state
    context = forms.mute_options(request) | {"group": group, "invalid": invalid}
    return forms.dialog(request, "mute", context)


@require_POST
@for_operators
def mute(request: HttpRequest, who: Person, application: str, fingerprint: str) -> HttpResponse:
    """Mute a group until a time, or until it fails more often."""
    try:
        requested = _request(request, who, GroupAct.MUTE, fingerprint)
        return _act_and_show(request, who, application, requested)
    except InvalidValue as error:
        return _mute_dialog(request, application, fingerprint, invalid=f"{error}.")


@require_GET
@for_operators
def assign_dialog(
    request: HttpRequest, who: Person, application: str, fingerprint: str
) -> HttpResponse:
    """Show the dialog to assign a group."""
    return _assign_dialog(request, who, application, fingerprint)


def _assign_dialog(
    request: HttpRequest, who: Person, application: str, fingerprint: str, *, invalid: str = ""
) -> HttpResponse:
    group = queries.group(application, fingerprint).state
    context = _owner_options(request, who) | {"group": group, "invalid": invalid}
    context["assignee"] = request.POST.get("assignee", if_set(group.assignee) or "")
    return forms.dialog(request, "assign", context)


def _owner_options(request: HttpRequest, who: Person) -> dict[str, object]:
    names = dict.fromkeys((who.name, *queries.known_owners()))
    return {"owners": names, "assignee": request.POST.get("assignee", "")}


@require_POST
@for_operators
def assign(request: HttpRequest, who: Person, application: str, fingerprint: str) -> HttpResponse:
    """Assign a group to a person or a team, or leave it to the owner rules."""
    try:
        requested = _request(request, who, GroupAct.ASSIGN, fingerprint)
        return _act_and_show(request, who, application, requested)
    except InvalidValue as error:
        return _assign_dialog(request, who, application, fingerprint, invalid=f"{error}.")


def _request(
    request: HttpRequest, who: Person, act: GroupAct, fingerprint: str = ""
) -> GroupRequest:
    if act is GroupAct.MUTE:
        return forms.mute_request(request, who, fingerprint)
    assignee = None
    if act is GroupAct.ASSIGN:
        typed = request.POST.get("assignee", "").strip()
        assignee = who.name if "me" in request.POST else typed or None
    return GroupRequest(
        id=forms.act_id(request),
        act=act,
        fingerprint=fingerprint,
        actor=who.name,
        reason=forms.reason(request),
        assignee=assignee,
    )


def _act_and_show(
    request: HttpRequest, who: Person, application: str, requested: GroupRequest
) -> HttpResponse:
    tab = request.POST.get("tab", "")
    key = [application, requested.fingerprint]
    show = partial(errors.show, request, who, *key, tab=tab if tab in errors.TABS else "")
    act = partial(actions.act_on_group, application, requested)
    return forms.act_and_show(request, act, show, redirect_to=reverse("error", args=key))


@require_POST
@for_operators
def note(request: HttpRequest, who: Person, application: str, fingerprint: str) -> HttpResponse:
    """Add a note to a group."""
    text, id = request.POST.get("text", "").strip(), forms.act_id(request)
    actions.note_on_group(application, fingerprint, actor=who.name, text=text, id=id)
    show = partial(errors.show, request, who, application, fingerprint, tab="notes")
    url = reverse("error", args=[application, fingerprint])
    return forms.page_after(request, show, redirect_to=f"{url}?tab=notes")


@require_GET
@for_operators
def bulk_dialog(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the dialog with the selected groups."""
    act = _act(request.GET.get("act", ""))
    return _bulk_dialog(request, who, act, request.GET.getlist("group"))


def _bulk_dialog(
    request: HttpRequest, who: Person, act: GroupAct, selected: list[str], *, invalid: str = ""
) -> HttpResponse:
    groups = queries.groups_by_key(_keys(selected)).values()
    for group in groups:
        access.require(group.application)
    context = forms.mute_options(request) | {
        "button": BULK[act],
        "groups": groups,
        "invalid": invalid,
    }
    if act is GroupAct.ASSIGN:
        context |= _owner_options(request, who)
    return forms.dialog(request, "many_groups", context)


@require_POST
@for_operators
def bulk_act(request: HttpRequest, who: Person) -> HttpResponse:
    """Act on the groups of the dialog, and report the results."""
    act, selected = _act(request.POST.get("act", "")), request.POST.getlist("group")
    try:
        done = actions.act_on_groups(_keys(selected), _request(request, who, act))
    except InvalidValue as error:
        return _bulk_dialog(request, who, act, selected, invalid=f"{error}.")
    show = partial(errors.show_all, request, who, notice=_notice(done, act))
    return forms.page_after(request, show, redirect_to=reverse("errors"))


def _act(text: str) -> GroupAct:
    if text not in list(GroupAct):
        raise InvalidValue("act", text, ", ".join(GroupAct))
    return GroupAct(text)


def _keys(selected: list[str]) -> list[tuple[str, str]]:
    """Return application and fingerprint of each: the name of an application contains no slash."""
    keys = [each.partition("/")[::2] for each in selected]
    if not 1 <= len(keys) <= actions.MAX_GROUPS:
        raise InvalidValue("group", len(keys), f"1 to {actions.MAX_GROUPS} error groups at once")
    return keys


def _notice(done: list[actions.ActedOn], act: GroupAct) -> Notice:
    refused = Counter(each.refused for each in done if each.group is None)
    number = len(done) - refused.total()
    text = f"{number:,} {'group' if number == 1 else 'groups'} {BULK[act].done}."
    text += forms.refusals(refused)
    return Notice(text=text, bad=bool(refused))

"""Acts on the error groups that are selected in the list."""

from __future__ import annotations

from collections import Counter

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import actions, queries
from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.domain.identity.uuids import uuid7
from arrester.controlplane.domain.state.error_groups import GroupAct, GroupRequest
from arrester.dashboard.components import mute_form
from arrester.dashboard.components.action_forms import act_id, after_act, show_dialog
from arrester.dashboard.components.group_buttons import MANY
from arrester.dashboard.page_frame import Notice
from arrester.dashboard.pages import errors
from arrester.dashboard.permissions import Person, for_operators

#: The most refusals that a notice names.
NAMED = 3


@require_GET
@for_operators
def dialog(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the dialog with the selected groups."""
    return _dialog(request, _act(request.GET.get("act", "")), request.GET.getlist("group"))


def _dialog(
    request: HttpRequest, wanted: GroupAct, ticked: list[str], *, wrong: str = ""
) -> HttpResponse:
    now = timezone.now()
    context = mute_form.ends(request) | {
        "button": MANY[wanted],
        "groups": queries.groups_by_key(_keys(ticked)).values(),
        "typed_reason": request.POST.get("reason", ""),
        "id": request.POST.get("id") or uuid7(now),
        "wrong": wrong,
        "now": now,
    }
    return show_dialog(request, "many_groups", context)


@require_POST
@for_operators
def act(request: HttpRequest, who: Person) -> HttpResponse:
    """Act on the groups of the dialog, and report the results."""
    wanted, ticked = _act(request.POST.get("act", "")), request.POST.getlist("group")
    try:
        done = actions.act_on_groups(_keys(ticked), _wish(request, who, wanted))
    except InvalidValue as wrong:
        return _dialog(request, wanted, ticked, wrong=f"{wrong}.")
    said = _notice(done, wanted)
    return after_act(
        request,
        lambda: errors.show_all(request, who, notice=said),
        plainly=reverse("errors"),
    )


def _wish(request: HttpRequest, who: Person, wanted: GroupAct) -> GroupRequest:
    if wanted is GroupAct.MUTE:
        return mute_form.requested(request, who, fingerprint="")
    reason = request.POST.get("reason", "").strip() or None
    return GroupRequest(
        id=act_id(request), act=wanted, fingerprint="", actor=who.name, reason=reason
    )


def _act(text: str) -> GroupAct:
    if text not in list(GroupAct):
        raise InvalidValue("act", text, ", ".join(GroupAct))
    return GroupAct(text)


def _keys(ticked: list[str]) -> list[tuple[str, str]]:
    """Return application and fingerprint of each: the name of an application contains no slash."""
    keys = [each.partition("/")[::2] for each in ticked]
    if not 1 <= len(keys) <= actions.MOST_GROUPS:
        raise InvalidValue("group", len(keys), f"1 to {actions.MOST_GROUPS} error groups at once")
    return keys


def _notice(done: list[actions.ActedOn], wanted: GroupAct) -> Notice:
    refused = Counter(each.refused for each in done if each.group is None)
    number = len(done) - refused.total()
    text = f"{number:,} {'group' if number == 1 else 'groups'} {MANY[wanted].done}."
    if refused:
        named = "; ".join(reason for reason, _ in refused.most_common(NAMED))
        text = f"{text} {refused.total():,} refused: {named}."
    return Notice(text=text, bad=bool(refused))

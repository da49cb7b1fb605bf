"""Rollouts: one command for all tasks that a cause has stopped, in waves."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import access, actions, queries
from arrester.dashboard.components import command_delivery, forms
from arrester.dashboard.permissions import Person, for_operators
from arrester.domain.commands.kinds import KINDS, ROLLOUTS, skips_records
from arrester.domain.commands.request import CommandRequest
from arrester.domain.commands.rollout import (
    MAX_OBSERVE_SECONDS,
    MAX_TASKS_PER_MINUTE,
)
from arrester.domain.errors import CommandForbidden, InvalidValue
from arrester.domain.events import CommandKind, Rollout
from arrester.domain.json_patch import MAX_CHARACTERS


@require_GET
@for_operators
def dialog(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the dialog: the kinds of commands, each with its number of tasks, and the waves."""
    return _dialog(request, request.GET)


def _dialog(request: HttpRequest, given: Any, *, invalid: str = "") -> HttpResponse:
    application, cause = given.get("application", ""), given.get("fingerprint", "")
    access.require(application)
    counts = queries.rollout_tasks(application, fingerprint=cause or None)
    some = [kind for kind, number in counts.items() if number]
    live = command_delivery.live_instances(application)
    rollout = Rollout(fingerprint=cause or None, tasks=0)
    context = {
        "application": application,
        "fingerprint": cause,
        "kinds": [(kind.value, number) for kind, number in counts.items()],
        "chosen": given.get("kind") or (some[0].value if some else ""),
        "any": bool(some),
        "rollout": rollout,
        "posted": request.POST,
        "most_characters": MAX_CHARACTERS,
        "max_observe": MAX_OBSERVE_SECONDS,
        "max_rate": MAX_TASKS_PER_MINUTE,
        "recipients": command_delivery.recipients(live),
        "skipped": queries.skipped_in_rollout(application, rollout),
        "afterwards": [
            text
            for kind in some
            if (text := queries.after_rollout(application, kind, rollout)) is not None
        ],
        "invalid": invalid,
    }
    return forms.dialog(request, "rollout", context)


@require_POST
@for_operators
def start(request: HttpRequest, who: Person) -> HttpResponse:
    """Start the rollout of the dialog, and open its page."""
    application = request.POST.get("application", "")
    try:
        requested = _requested(request, who)
        if _loses_unconfirmed(request, application, requested):
            return _dialog(request, request.POST, invalid=forms.LOSS_UNCONFIRMED)
        command = actions.start_rollout(application, requested)
    except (InvalidValue, CommandForbidden) as error:
        return _dialog(request, request.POST, invalid=f"{error}.")
    return forms.to_command(request, command.id)


def _loses_unconfirmed(request: HttpRequest, application: str, requested: CommandRequest) -> bool:
    """Whether records would be lost, and the form does not confirm it."""
    rollout = requested.rollout
    if rollout is None or not skips_records(requested.kind):
        return False
    access.require(application)
    return forms.must_confirm_loss(request, queries.skipped_in_rollout(application, rollout))


def _requested(request: HttpRequest, who: Person) -> CommandRequest:
    kind = request.POST.get("kind", "")
    if kind not in list(ROLLOUTS):
        raise InvalidValue("kind", kind, ", ".join(ROLLOUTS))
    row = KINDS[CommandKind(kind)]
    reason = forms.reason(request)
    if row.needs_reason and reason is None:
        raise InvalidValue("reason", "", "a text: skipping or changing records needs a reason")
    rollout = Rollout(
        fingerprint=request.POST.get("fingerprint") or None,
        tasks=0,
        waves="waves" in request.POST,
        observe_seconds=forms.whole_number("observe_seconds", request.POST),
        tasks_per_minute=forms.whole_number("tasks_per_minute", request.POST),
    )
    return CommandRequest(
        command=forms.act_id(request),
        kind=row.kind,
        actor=who.name,
        reason=reason,
        patch=request.POST.get("patch", "").strip() if "patch" in row.fields else None,
        rollout=rollout,
    )

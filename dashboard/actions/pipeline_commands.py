"""Commands for a pipeline and for a key of it, and their dialogs: restart, pause, resume."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import actions, queries
from arrester.dashboard.actions.application_commands import issue_and_show
from arrester.dashboard.components import command_delivery, forms
from arrester.dashboard.permissions import Person, for_operators
from arrester.domain.commands.kinds import KINDS
from arrester.domain.commands.request import CommandRequest
from arrester.domain.errors import InvalidValue, NotFound
from arrester.domain.events import CommandKind
from arrester.domain.state.states import ThreadStatus


@require_GET
@for_operators
def dialog(request: HttpRequest, who: Person, name: str, kind: CommandKind) -> HttpResponse:
    """Show the dialog of a command for a pipeline: its runs, the recipients, and the reason."""
    return _dialog(request, name, kind, request.GET.get("pipeline", ""))


def _dialog(
    request: HttpRequest, name: str, kind: CommandKind, pipeline: str, *, invalid: str = ""
) -> HttpResponse:
    live = command_delivery.live_instances(name)
    reached = queries.restartable if kind is CommandKind.RESTART_PIPELINE else queries.runs
    threads = reached(name, pipeline, [each.instance for each in live])
    instances = {each.instance for each in threads}
    context = {
        "name": name,
        "pipeline": pipeline,
        "threads": threads,
        "ended": all(each.status is ThreadStatus.DEAD for each in threads),
        "paused": next((each.paused for each in threads if each.paused), None),
        "recipients": [each for each in live if each.instance.id in instances],
        "posted": request.POST,
        "pauses": forms.pause_lengths(),
        "invalid": invalid,
    }
    return forms.dialog(request, kind.lower(), context)


@require_POST
@for_operators
def issue(request: HttpRequest, who: Person, name: str, kind: CommandKind) -> HttpResponse:
    """Issue a command for a pipeline to the instances that run it, or ran it last."""
    row, pipeline, reason = KINDS[kind], request.POST.get("pipeline", ""), forms.reason(request)
    if row.needs_reason and reason is None:
        return _dialog(request, name, kind, pipeline, invalid=forms.REASON_REQUIRED)
    try:
        until, duration = forms.pause_end(request) if "until" in row.fields else (None, None)
        requested = CommandRequest(
            command=forms.act_id(request),
            kind=kind,
            actor=who.name,
            reason=reason,
            pipeline=pipeline,
            until=until,
            duration=duration,
        )
        return issue_and_show(request, who, name, requested)
    except InvalidValue as error:
        return _dialog(request, name, kind, pipeline, invalid=f"{error}.")


@require_GET
@for_operators
def key_dialog(request: HttpRequest, who: Person, name: str) -> HttpResponse:
    """Show the dialog to pause a task by its key, which need not have failed."""
    return _key_dialog(request, name, request.GET.get("pipeline", ""))


def _key_dialog(
    request: HttpRequest, name: str, pipeline: str, *, invalid: str = ""
) -> HttpResponse:
    live = command_delivery.live_instances(name)
    threads = queries.runs(name, pipeline, [each.instance for each in live])
    instances = {each.instance for each in threads}
    context = {
        "name": name,
        "pipeline": pipeline,
        "recipients": [each for each in live if each.instance.id in instances],
        "posted": request.POST,
        "pauses": forms.pause_lengths(),
        "invalid": invalid,
    }
    return forms.dialog(request, "pause_key", context)


@require_POST
@for_operators
def pause_key(request: HttpRequest, who: Person, name: str) -> HttpResponse:
    """Pause the task of a key on the live checkpoint of a pipeline."""
    pipeline, key = request.POST.get("pipeline", ""), request.POST.get("key", "")
    try:
        until, duration = forms.pause_end(request)
        requested = CommandRequest(
            command=forms.act_id(request),
            kind=CommandKind.PAUSE_TASK,
            actor=who.name,
            reason=forms.reason(request),
            task=actions.task_of_key(name, pipeline, key),
            until=until,
            duration=duration,
        )
        return issue_and_show(request, who, name, requested)
    except (InvalidValue, NotFound) as error:
        return _key_dialog(request, name, pipeline, invalid=f"{error}.")

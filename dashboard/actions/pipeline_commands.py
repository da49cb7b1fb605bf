"""The command to restart a pipeline, and its dialog."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import queries
from arrester.controlplane.domain.commands.request import CommandRequest
from arrester.controlplane.domain.events import CommandKind
from arrester.controlplane.domain.state.states import ThreadStatus
from arrester.dashboard.actions.application_commands import issue_and_show
from arrester.dashboard.components import command_delivery, forms
from arrester.dashboard.permissions import Person, for_operators


@require_GET
@for_operators
def dialog(request: HttpRequest, who: Person, name: str) -> HttpResponse:
    """Show the dialog to restart a pipeline: its runs, the recipients, and the reason."""
    return _dialog(request, name, request.GET.get("pipeline", ""))


def _dialog(request: HttpRequest, name: str, pipeline: str, *, invalid: str = "") -> HttpResponse:
    live = command_delivery.live_instances(name)
    threads = queries.restartable(name, pipeline, [each.instance for each in live])
    instances = {each.instance for each in threads}
    context = {
        "name": name,
        "pipeline": pipeline,
        "threads": threads,
        "ended": all(each.status is ThreadStatus.DEAD for each in threads),
        "recipients": [each for each in live if each.instance.id in instances],
        "invalid": invalid,
    }
    return forms.dialog(request, "restart_pipeline", context)


@require_POST
@for_operators
def restart(request: HttpRequest, who: Person, name: str) -> HttpResponse:
    """Restart a pipeline in the instances that have its threads."""
    pipeline, reason = request.POST.get("pipeline", ""), forms.reason(request)
    if reason is None:
        return _dialog(request, name, pipeline, invalid=forms.REASON_REQUIRED)
    requested = CommandRequest(
        command=forms.act_id(request),
        kind=CommandKind.RESTART_PIPELINE,
        actor=who.name,
        reason=reason,
        pipeline=pipeline,
    )
    return issue_and_show(request, who, name, requested)

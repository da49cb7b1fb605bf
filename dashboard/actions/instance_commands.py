"""The command to shut an instance down, and its dialog."""

from __future__ import annotations

from functools import partial
from urllib.parse import urlsplit
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import actions, queries
from arrester.dashboard.components import command_delivery, forms
from arrester.dashboard.pages import applications, instances
from arrester.dashboard.permissions import Person, for_operators
from arrester.domain.commands.request import CommandRequest
from arrester.domain.events import CommandKind
from arrester.domain.state.states import ThreadStatus


@require_GET
@for_operators
def dialog(request: HttpRequest, who: Person, name: str, id: UUID) -> HttpResponse:
    """Show the dialog to shut an instance down: its pipelines, and the reason."""
    return _dialog(request, name, id)


def _dialog(request: HttpRequest, name: str, id: UUID, *, invalid: str = "") -> HttpResponse:
    instance = queries.instance(name, id)
    live = command_delivery.recipients(command_delivery.live_instances(name))
    context = {
        "instance": instance,
        "recipient": next((each for each in live if each.instance.id == id), None),
        "pipelines": [
            thread.pipeline
            for thread in queries.threads(name)
            if thread.instance == id and thread.status is ThreadStatus.RUNNING
        ],
        "force": forms.is_forced(request),
        "invalid": invalid,
    }
    return forms.dialog(request, "shut_down_instance", context)


@require_POST
@for_operators
def shut_down(request: HttpRequest, who: Person, name: str, id: UUID) -> HttpResponse:
    """Shut an instance down; the others go on."""
    if forms.reason(request) is None:
        return _dialog(request, name, id, invalid=forms.REASON_REQUIRED)
    requested = CommandRequest(
        command=forms.act_id(request),
        kind=CommandKind.SHUT_DOWN_INSTANCE,
        actor=who.name,
        reason=forms.reason(request),
        instance=id,
        force=forms.is_forced(request),
    )
    show = partial(applications.show, request, who, name)
    if urlsplit(request.headers.get("HX-Current-URL", "")).path == reverse("instances"):
        show = partial(instances.show_all, request, who)
    url = reverse("command", args=[requested.command])
    act = partial(actions.issue_command, name, requested)
    return forms.act_and_show(request, act, show, redirect_to=url, link=url)

"""Commands for an application, and their dialogs: shut down, start, set policy."""

from __future__ import annotations

from functools import partial
from typing import cast, get_args

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import actions, queries
from arrester.dashboard.components import command_delivery, forms
from arrester.dashboard.page_frame import is_shown
from arrester.dashboard.pages import applications, pipelines
from arrester.dashboard.permissions import Person, for_operators
from arrester.dashboard.text import policy_text
from arrester.domain.commands.kinds import KINDS
from arrester.domain.commands.request import CommandRequest
from arrester.domain.events import CommandKind, StageAnswer


@require_GET
@for_operators
def dialog(request: HttpRequest, who: Person, name: str, kind: CommandKind) -> HttpResponse:
    """Show the dialog to shut an application down, or to start it: the effects, and the reason."""
    return _dialog(request, name, kind)


def _dialog(
    request: HttpRequest, name: str, kind: CommandKind, *, invalid: str = ""
) -> HttpResponse:
    context = {
        "summary": queries.application(name),
        "recipients": command_delivery.recipients(command_delivery.live_instances(name)),
        "grid": queries.pipelines(name, limit=1, section=queries.Section(size=5)),
        "force": forms.is_forced(request),
        "invalid": invalid,
    }
    return forms.dialog(request, KINDS[kind].slug.replace("-", "_"), context)


@require_POST
@for_operators
def issue(request: HttpRequest, who: Person, name: str, kind: CommandKind) -> HttpResponse:
    """Shut an application down after its name was typed, or open it again."""
    row = KINDS[kind]
    if row.is_shutdown and request.POST.get("name", "") != name:
        return _dialog(request, name, kind, invalid=f"Type {name} to confirm.")
    if row.needs_reason and forms.reason(request) is None:
        return _dialog(request, name, kind, invalid=forms.REASON_REQUIRED)
    force = "force" in row.fields and forms.is_forced(request)
    return _issue(request, who, name, kind, force=force)


@require_GET
@for_operators
def policy_dialog(request: HttpRequest, who: Person, name: str) -> HttpResponse:
    """Show the dialog to override the policy of a stage."""
    pipeline, stage = request.GET.get("pipeline", ""), request.GET.get("stage", "")
    return _policy_dialog(request, name, pipeline, stage)


def _policy_dialog(
    request: HttpRequest, name: str, pipeline: str, stage: str, *, invalid: str = ""
) -> HttpResponse:
    live = command_delivery.live_instances(name)
    runs = queries.runs(name, pipeline, [each.instance for each in live])
    instances = {each.instance for each in runs}
    choices = policy_text.choices(runs, pipeline, stage)
    context = {
        "name": name,
        "pipeline": pipeline,
        "stage": stage,
        "choices": choices,
        "typed_answer": request.POST.get("answer", choices[0].value if choices else ""),
        "recipients": [
            each for each in command_delivery.recipients(live) if each.instance.id in instances
        ],
        "invalid": invalid or ("" if choices else policy_text.refusal(runs, pipeline, stage)),
    }
    return forms.dialog(request, "set_policy", context)


@require_POST
@for_operators
def set_policy(request: HttpRequest, who: Person, name: str) -> HttpResponse:
    """Override the policy of a stage; an empty answer removes the override."""
    pipeline, stage = request.POST.get("pipeline", ""), request.POST.get("stage", "")
    answer = request.POST.get("answer")
    if answer is None or answer not in ("", *get_args(StageAnswer)):
        return _policy_dialog(request, name, pipeline, stage, invalid="Choose an answer.")
    if forms.reason(request) is None:
        return _policy_dialog(request, name, pipeline, stage, invalid=forms.REASON_REQUIRED)
    return _issue(
        request,
        who,
        name,
        CommandKind.SET_POLICY,
        pipeline=pipeline,
        stage=stage,
        answer=cast("StageAnswer | None", answer or None),
    )


def _issue(
    request: HttpRequest,
    who: Person,
    name: str,
    kind: CommandKind,
    *,
    pipeline: str | None = None,
    stage: str | None = None,
    answer: StageAnswer | None = None,
    force: bool = False,
) -> HttpResponse:
    requested = CommandRequest(
        command=forms.act_id(request),
        kind=kind,
        actor=who.name,
        reason=forms.reason(request),
        pipeline=pipeline,
        stage=stage,
        answer=answer,
        force=force,
    )
    return issue_and_show(request, who, name, requested)


def issue_and_show(
    request: HttpRequest, who: Person, name: str, requested: CommandRequest
) -> HttpResponse:
    """Issue a command, and show the page of its application, or of its pipeline, with the
    result."""
    url = reverse("command", args=[requested.command])
    pipeline = (requested.task or requested).pipeline
    show = partial(applications.show, request, who, name)
    if pipeline is not None and is_shown(request, reverse("pipeline", args=[name, pipeline])):
        show = partial(pipelines.show, request, who, name, pipeline)
    return forms.act_and_show(
        request,
        partial(actions.issue_command, name, requested),
        show,
        redirect_to=url,
        link=url,
    )

"""The dialogs and actions of commands; each action is one command."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast, get_args
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import actions, queries
from arrester.controlplane.domain.errors import CommandRefused
from arrester.controlplane.domain.events import StageAnswer
from arrester.controlplane.domain.identity.uuids import uuid7
from arrester.controlplane.domain.state.states import CommandState
from arrester.dashboard.components import command_recipients
from arrester.dashboard.components.action_forms import act_id, after_act, show_dialog
from arrester.dashboard.page_frame import Notice
from arrester.dashboard.pages import applications, tasks
from arrester.dashboard.permissions import Person, for_operators
from arrester.dashboard.text import policy_text, record_text

Show = Callable[..., HttpResponse]
Issue = Callable[[UUID], CommandState]


@require_GET
@for_operators
def skip_dialog(request: HttpRequest, who: Person, digest: str) -> HttpResponse:
    """Show the dialog to skip a record: the record, and a field for the reason."""
    return _skip_dialog(request, digest)


def _skip_dialog(request: HttpRequest, digest: str, *, wrong: str = "") -> HttpResponse:
    detail = queries.task(digest)
    alive = queries.instances(detail.state.id.application)
    context = record_text.shown(detail.failure) | {
        "task": detail.state,
        "expiry_minutes": command_recipients.expiry_minutes(),
        "listener": command_recipients.listener(detail.thread, alive, queries.heard(alive)),
        "wrong": wrong,
    }
    return _dialog(request, "skip", context)


@require_GET
@for_operators
def resume_at_dialog(request: HttpRequest, who: Person, digest: str) -> HttpResponse:
    """Show the dialog to resume at a position, with a reason for the skipped records."""
    return _resume_at_dialog(request, digest)


def _resume_at_dialog(request: HttpRequest, digest: str, *, wrong: str = "") -> HttpResponse:
    detail = queries.task(digest)
    alive = queries.instances(detail.state.id.application)
    context = {
        "task": detail.state,
        "typed_position": request.POST.get("position", ""),
        "expiry_minutes": command_recipients.expiry_minutes(),
        "listener": command_recipients.listener(detail.thread, alive, queries.heard(alive)),
        "wrong": wrong,
    }
    return _dialog(request, "resume_at", context)


@require_GET
@for_operators
def shut_down_dialog(request: HttpRequest, who: Person, name: str) -> HttpResponse:
    """Show the dialog to shut an application down: the effects, its name to type, the reason."""
    return _application_dialog(request, "shut_down", name)


@require_GET
@for_operators
def start_dialog(request: HttpRequest, who: Person, name: str) -> HttpResponse:
    """Show the dialog to start an application."""
    return _application_dialog(request, "start", name)


@require_GET
@for_operators
def policy_dialog(request: HttpRequest, who: Person, name: str) -> HttpResponse:
    """Show the dialog to override the policy of a stage."""
    pipeline, stage = request.GET.get("pipeline", ""), request.GET.get("stage", "")
    return _policy_dialog(request, name, pipeline, stage)


def _policy_dialog(
    request: HttpRequest, name: str, pipeline: str, stage: str, *, wrong: str = ""
) -> HttpResponse:
    alive = queries.instances(name)
    runs = queries.runs(name, pipeline, alive)
    hearing = {each.instance for each in runs}
    everybody = command_recipients.listeners(alive, queries.heard(alive))
    choices = policy_text.choices(runs, pipeline, stage)
    context = {
        "name": name,
        "pipeline": pipeline,
        "stage": stage,
        "choices": choices,
        "typed_answer": request.POST.get("answer", choices[0].value if choices else ""),
        "listeners": [each for each in everybody if each.instance.id in hearing],
        "expiry_minutes": command_recipients.expiry_minutes(),
        "wrong": wrong or ("" if choices else policy_text.why_not(runs, pipeline, stage)),
    }
    return _dialog(request, "set_policy", context)


def _application_dialog(
    request: HttpRequest, dialog: str, name: str, *, wrong: str = ""
) -> HttpResponse:
    summary = queries.application(name)
    alive = queries.instances(name)
    context = {
        "summary": summary,
        "listeners": command_recipients.listeners(alive, queries.heard(alive)),
        "pipelines": queries.pipelines(name),
        "wrong": wrong,
    }
    return _dialog(request, dialog, context)


def _dialog(request: HttpRequest, dialog: str, context: dict[str, object]) -> HttpResponse:
    now = timezone.now()
    given = {"typed_reason": request.POST.get("reason", ""), "now": now}
    given["command_id"] = request.POST.get("command") or uuid7(now)
    return show_dialog(request, dialog, context | given)


@require_POST
@for_operators
def resume(request: HttpRequest, who: Person, digest: str) -> HttpResponse:
    """Resume a task at the failed record."""
    return _done(
        request,
        lambda command: actions.resume_task(digest, actor=who.name, command=command),
        lambda **said: tasks.show(request, who, digest, **said),
    )


@require_POST
@for_operators
def skip(request: HttpRequest, who: Person, digest: str) -> HttpResponse:
    """Resume a task after skipping the failed record."""
    reason = request.POST.get("reason", "").strip()
    if not reason:
        return _skip_dialog(request, digest, wrong="A reason is required.")
    return _done(
        request,
        lambda command: actions.skip_record(digest, actor=who.name, reason=reason, command=command),
        lambda **said: tasks.show(request, who, digest, **said),
    )


@require_POST
@for_operators
def resume_at(request: HttpRequest, who: Person, digest: str) -> HttpResponse:
    """Resume a task at a position, skipping the held records before it."""
    reason = request.POST.get("reason", "").strip()
    position = _whole_number(request.POST.get("position", ""))
    if position is None:
        return _resume_at_dialog(request, digest, wrong="A position is a whole number.")
    if not reason:
        return _resume_at_dialog(request, digest, wrong="A reason is required.")
    return _done(
        request,
        lambda command: actions.resume_task_at(
            digest, position=position, actor=who.name, reason=reason, command=command
        ),
        lambda **said: tasks.show(request, who, digest, **said),
    )


def _whole_number(text: str) -> int | None:
    try:
        return int(text.replace(",", ""))
    except ValueError:
        return None


@require_POST
@for_operators
def pause(request: HttpRequest, who: Person, digest: str) -> HttpResponse:
    """Pause a running task until it is resumed."""
    return _done(
        request,
        lambda command: actions.pause_task(digest, actor=who.name, command=command),
        lambda **said: tasks.show(request, who, digest, **said),
    )


@require_POST
@for_operators
def restart(request: HttpRequest, who: Person, digest: str) -> HttpResponse:
    """Restart a task that died alone at the failed record."""
    return _done(
        request,
        lambda command: actions.restart_task(digest, actor=who.name, command=command),
        lambda **said: tasks.show(request, who, digest, **said),
    )


@require_POST
@for_operators
def shut_down(request: HttpRequest, who: Person, name: str) -> HttpResponse:
    """Shut an application down after its name was typed."""
    reason = request.POST.get("reason", "").strip()
    if request.POST.get("name", "") != name:
        wrong = f"Type {name} to confirm."
        return _application_dialog(request, "shut_down", name, wrong=wrong)
    if not reason:
        return _application_dialog(request, "shut_down", name, wrong="A reason is required.")
    return _done(
        request,
        lambda command: actions.shut_down_application(
            name, actor=who.name, reason=reason, command=command
        ),
        lambda **said: applications.show(request, who, name, **said),
    )


@require_POST
@for_operators
def set_policy(request: HttpRequest, who: Person, name: str) -> HttpResponse:
    """Override the policy of a stage; an empty answer removes the override."""
    given = {field: request.POST.get(field, "") for field in ("pipeline", "stage")}
    reason, answer = request.POST.get("reason", "").strip(), request.POST.get("answer")
    if answer is None or answer not in ("", *get_args(StageAnswer)):
        return _policy_dialog(request, name, **given, wrong="Choose an answer.")
    if not reason:
        return _policy_dialog(request, name, **given, wrong="A reason is required.")
    said = cast("StageAnswer | None", answer or None)
    return _done(
        request,
        lambda command: actions.set_policy(
            name, **given, answer=said, actor=who.name, reason=reason, command=command
        ),
        lambda **said: applications.show(request, who, name, **said),
    )


@require_POST
@for_operators
def start(request: HttpRequest, who: Person, name: str) -> HttpResponse:
    """Open a shut down application, so that its instances may run again."""
    reason = request.POST.get("reason", "").strip() or None
    return _done(
        request,
        lambda command: actions.start_application(
            name, actor=who.name, reason=reason, command=command
        ),
        lambda **said: applications.show(request, who, name, **said),
    )


def _done(request: HttpRequest, issue: Issue, show: Show) -> HttpResponse:
    """Issue the command with the form's id; respond with the page after it."""
    command = act_id(request, "command")
    try:
        issue(command)
        notice, status = None, 200
    except CommandRefused as refused:
        url = reverse("command", args=[command])
        text = f"Refused: {refused}."
        notice, status = Notice(text=text, url=url, link="The command", bad=True), 409
    page = partial(show, notice=notice, status=status)
    return after_act(request, page, plainly=reverse("command", args=[command]))

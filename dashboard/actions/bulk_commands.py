"""Commands for many tasks: resume those of an application, a cause or a selection; dismiss some."""

from __future__ import annotations

from collections import Counter
from functools import partial

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import access, actions, queries
from arrester.dashboard.components import command_delivery, forms
from arrester.dashboard.page_frame import Notice
from arrester.dashboard.pages import applications, errors, tasks
from arrester.dashboard.permissions import Person, for_operators


@require_GET
@for_operators
def dialog(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the dialog: the tasks, their held records, and the live instances."""
    application = request.GET.get("application", "")
    cause = request.GET.get("fingerprint") or None
    selected = request.GET.getlist("task")
    selection = (
        queries.paused_of(selected[: actions.MAX_TASKS])
        if selected
        else queries.paused(application, fingerprint=cause, limit=actions.MAX_TASKS)
    )
    # Selected rows may belong to several applications with different instances.
    names = [application] if application else {task.id.application for task in selection.tasks}
    for name in names:
        access.require(name)
    context = {
        "application": application,
        "fingerprint": cause or "",
        "tasks": selection.tasks,
        "left": selection.more,
        "held": sum(task.held for task in selection.tasks),
        "recipients": command_delivery.recipients(command_delivery.live_instances(*sorted(names))),
    }
    return forms.dialog(request, "resume_many", context)


@require_POST
@for_operators
def resume(request: HttpRequest, who: Person) -> HttpResponse:
    """Resume the tasks of the dialog, and report the results."""
    selected, reason = request.POST.getlist("task"), forms.reason(request)
    id = forms.act_id(request)
    done = actions.resume_tasks(selected, actor=who.name, reason=reason, id=id)
    application, cause = request.POST.get("application", ""), request.POST.get("fingerprint", "")
    notice = _notice(done, application)

    def show() -> HttpResponse:
        if cause:
            return errors.show(request, who, application, cause, notice=notice)
        if application:
            return applications.show(request, who, application, notice=notice)
        return tasks.show_all(request, who, notice=notice)

    url = f"{reverse('commands')}?application={application}"
    return forms.page_after(request, show, redirect_to=url)


@require_GET
@for_operators
def dismiss_dialog(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the dialog to dismiss those of the selected tasks that no run processes."""
    return _dismiss_dialog(request, request.GET.getlist("task"))


def _dismiss_dialog(
    request: HttpRequest, selected: list[str], *, invalid: str = ""
) -> HttpResponse:
    tasks = queries.without_run(selected[: actions.MAX_TASKS])
    for task in tasks:
        access.require(task.id.application)
    context = {
        "tasks": tasks,
        "held": sum(task.held for task in tasks),
        "others": len(selected) - len(tasks),
        "invalid": invalid,
    }
    return forms.dialog(request, "dismiss_many", context)


@require_POST
@for_operators
def dismiss(request: HttpRequest, who: Person) -> HttpResponse:
    """Dismiss the tasks of the dialog, and report the results."""
    selected, reason = request.POST.getlist("task"), forms.reason(request)
    if reason is None:
        return _dismiss_dialog(request, selected, invalid=forms.REASON_REQUIRED)
    id = forms.act_id(request)
    done = actions.dismiss_tasks(selected, actor=who.name, reason=reason, id=id)
    show = partial(tasks.show_all, request, who, notice=_notice(done, "", word="dismiss"))
    return forms.page_after(request, show, redirect_to=reverse("commands"))


def _notice(done: list[actions.TaskResult], application: str, *, word: str = "resume") -> Notice:
    refused = Counter(each.refused for each in done if each.command is None)
    issued = len(done) - refused.total()
    text = f"{issued:,} {word} {'command' if issued == 1 else 'commands'} issued."
    text += forms.refusals(refused)
    url = f"{reverse('commands')}?application={application}" if application else reverse("commands")
    return Notice(text=text, url=url, link="View commands", bad=bool(refused))

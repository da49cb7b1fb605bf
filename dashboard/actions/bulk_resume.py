"""Resume many tasks at once: all PAUSED ones of an application, or those of one error."""

from __future__ import annotations

from collections import Counter

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import actions, queries
from arrester.controlplane.domain.identity.uuids import uuid7
from arrester.dashboard.components import command_recipients
from arrester.dashboard.components.action_forms import act_id, after_act
from arrester.dashboard.page_frame import Notice
from arrester.dashboard.pages import applications, errors, tasks
from arrester.dashboard.permissions import Person, for_operators

#: How many refusals a notice names.
NAMED = 3


@require_GET
@for_operators
def dialog(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the dialog: the tasks, their held records, and the live instances."""
    application = request.GET.get("application", "")
    cause = request.GET.get("fingerprint") or None
    ticked = request.GET.getlist("task")
    found = (
        queries.paused_of(ticked[: actions.MOST_AT_ONCE])
        if ticked
        else queries.paused(application, fingerprint=cause, limit=actions.MOST_AT_ONCE)
    )
    # Selected rows may belong to several applications with different instances.
    names = [application] if application else {task.id.application for task in found.tasks}
    alive = [each for name in sorted(names) for each in queries.instances(name)]
    now = timezone.now()
    context = {
        "application": application,
        "fingerprint": cause or "",
        "tasks": found.tasks,
        "left": found.left,
        "held": sum(task.held for task in found.tasks),
        "listeners": command_recipients.listeners(alive, queries.heard(alive)),
        "expiry_minutes": command_recipients.expiry_minutes(),
        "id": uuid7(now),
        "now": now,
    }
    return render(request, "dashboard/dialogs/resume_many.html", context)


@require_POST
@for_operators
def resume(request: HttpRequest, who: Person) -> HttpResponse:
    """Resume the tasks of the dialog, and report the results."""
    done = actions.resume_tasks(
        request.POST.getlist("task"),
        actor=who.name,
        reason=request.POST.get("reason", "").strip() or None,
        id=act_id(request),
    )
    application, cause = request.POST.get("application", ""), request.POST.get("fingerprint", "")
    said = _notice(done, application)

    def show() -> HttpResponse:
        if cause:
            return errors.show(request, who, application, cause, notice=said)
        if application:
            return applications.show(request, who, application, notice=said)
        return tasks.show_all(request, who, notice=said)

    return after_act(request, show, plainly=f"{reverse('commands')}?application={application}")


def _notice(done: list[actions.Resumed], application: str) -> Notice:
    refused = [each for each in done if each.command is None]
    asked = len(done) - len(refused)
    text = f"{asked:,} {'task was' if asked == 1 else 'tasks were'} asked to resume."
    if refused:
        reasons = Counter(each.refused for each in refused)
        named = "; ".join(reason for reason, _ in reasons.most_common(NAMED))
        more = f"; and {len(reasons) - NAMED} more" if len(reasons) > NAMED else ""
        text = f"{text} {len(refused):,} refused: {named}{more}."
    url = f"{reverse('commands')}?application={application}" if application else reverse("commands")
    return Notice(text=text, url=url, link="The commands", bad=bool(refused))

"""Notes on tasks."""

from __future__ import annotations

from functools import partial

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_POST

from arrester.controlplane import actions, queries
from arrester.dashboard.components.action_forms import act_id, after_act
from arrester.dashboard.pages import tasks
from arrester.dashboard.permissions import Person, for_operators


@require_POST
@for_operators
def on_task(request: HttpRequest, who: Person, digest: str) -> HttpResponse:
    """Add a note to a task, shown in its history."""
    text, note = request.POST.get("text", "").strip(), act_id(request)
    task = queries.task(digest).state.id
    actions.note_on_task(task, actor=who.name, text=text, id=note)
    show = partial(tasks.show, request, who, digest)
    return after_act(request, show, plainly=reverse("task", args=[digest]))

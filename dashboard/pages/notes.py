"""Notes that people leave on tasks."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from controlplane import actions, queries
from controlplane.domain.errors import InvalidValue
from dashboard.pages import tasks
from dashboard.people import Person, for_operators, note_positions


@require_POST
@for_operators
def on_task(request: HttpRequest, who: Person, digest: str) -> HttpResponse:
    """Write something down about a task: it stands in its history."""
    text, id = request.POST.get("text", "").strip(), request.POST.get("id", "")
    try:
        note = UUID(id)
    except ValueError:
        raise InvalidValue("id", id, "a UUID, made once per form") from None
    task = queries.task(digest).state.id
    actions.note_on_task(task, actor=who.name, text=text, id=note)
    if "HX-Request" not in request.headers:
        return redirect("task", digest)
    note_positions(request)
    return tasks.show(request, who, digest)

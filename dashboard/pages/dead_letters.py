"""Dead letters: the list, and one entry with what the server stores of it."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from arrester.controlplane import queries
from arrester.controlplane.domain.errors import NotFound
from arrester.controlplane.domain.events import RecordsDeadLettered
from arrester.controlplane.domain.identity.names import task_id
from arrester.dashboard.components import filters
from arrester.dashboard.page_frame import page
from arrester.dashboard.permissions import Person, for_people
from arrester.dashboard.text import record_text


@for_people
def dead_letters(request: HttpRequest, who: Person) -> HttpResponse:
    """Show dead letters, newest first, filtered by the URL."""
    wanted = filters.of_dead_letters(request.GET, now=timezone.now())
    context = filters.form(request.GET, filters.DEAD_LETTER_FIELDS) | {
        "dead_letters": queries.dead_letters(wanted, cursor=request.GET.get("after")),
        "task": queries.task(wanted.task).state if wanted.task else None,
    }
    return page(request, who, "dead-letters", context, shows=wanted.application or "")


@for_people
def dead_letter(request: HttpRequest, who: Person, application: str, sequence: int) -> HttpResponse:
    """Show one entry: its destination, and the records that were reported in full."""
    stored = queries.event(application, sequence)
    run, data = stored.event.run, stored.event.data
    if not isinstance(data, RecordsDeadLettered) or run is None:
        raise NotFound(f"there are no dead letters at {application} @ {sequence}")
    task = task_id(application, run, data.task)
    examples = queries.examples(stored, task.digest)
    context = {
        "stored": stored,
        "dead_letters": data,
        "task": task,
        "examples": [(each, record_text.context(each)) for each in examples],
        "counted_only": max(0, data.count - len(examples)),
    }
    return page(request, who, "dead-letters", context, template="dead_letter", shows=application)

"""Forms that act: the id that each was made with, and the page that it comes back to."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.domain.errors import InvalidValue
from dashboard.people import note_positions


def act_id(request: HttpRequest, field: str = "id") -> UUID:
    """Return the id by which sending a form twice is one act; raises InvalidValue."""
    text = request.POST.get(field, "")
    try:
        return UUID(text)
    except ValueError:
        raise InvalidValue(field, text, "a UUID, made once per form") from None


def after_act(
    request: HttpRequest, show: Callable[[], HttpResponse], *, plainly: str
) -> HttpResponse:
    """Return what a form is answered: the page as it is then, whose dialog closes.

    Without JavaScript it is a redirect to the URL `plainly`, so that going back repeats no act.
    """
    if "HX-Request" not in request.headers:
        return redirect(plainly)
    note_positions(request)
    answer = show()
    answer["HX-Trigger"] = "arrester:done"
    return answer

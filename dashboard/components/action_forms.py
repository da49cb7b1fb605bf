"""Forms that act: their dialogs, the id that each was made with, the page that it comes back to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from arrester.controlplane.domain.errors import InvalidValue
from arrester.dashboard.permissions import note_positions


def act_id(request: HttpRequest, field: str = "id") -> UUID:
    """Return the id by which sending a form twice is one act; raises InvalidValue."""
    text = request.POST.get(field, "")
    try:
        return UUID(text)
    except ValueError:
        raise InvalidValue(field, text, "a UUID, made once per form") from None


def show_dialog(request: HttpRequest, name: str, context: dict[str, Any]) -> HttpResponse:
    """Return a dialog; what is `wrong` with the form that was sent stands in it, as 400."""
    wrong = bool(context.get("wrong"))
    status = 400 if wrong else 200
    answer = render(request, f"dashboard/dialogs/{name}.html", context, status=status)
    if wrong:
        answer["HX-Retarget"], answer["HX-Reswap"] = "#dialog", "innerHTML"
    return answer


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

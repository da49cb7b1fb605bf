"""Forms of actions: their dialogs, their ids, and the page after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from arrester.controlplane.domain.errors import InvalidValue
from arrester.dashboard.permissions import note_positions


def act_id(request: HttpRequest, field: str = "id") -> UUID:
    """Return the id that makes a repeated form one act; raises InvalidValue."""
    text = request.POST.get(field, "")
    try:
        return UUID(text)
    except ValueError:
        raise InvalidValue(field, text, "a UUID, made once per form") from None


def show_dialog(request: HttpRequest, name: str, context: dict[str, Any]) -> HttpResponse:
    """Return a dialog; faults of a sent form are shown in it, with status 400."""
    wrong = bool(context.get("wrong"))
    status = 400 if wrong else 200
    answer = render(request, f"dashboard/dialogs/{name}.html", context, status=status)
    if wrong:
        answer["HX-Retarget"], answer["HX-Reswap"] = "#dialog", "innerHTML"
    return answer


def after_act(
    request: HttpRequest, show: Callable[[], HttpResponse], *, plainly: str
) -> HttpResponse:
    """Return the response to a form: the page after the act, with the dialog closed.

    Without JavaScript it redirects to the URL `plainly`, so that going back repeats no act.
    """
    if "HX-Request" not in request.headers:
        return redirect(plainly)
    note_positions(request)
    answer = show()
    answer["HX-Trigger"] = "arrester:done"
    return answer

"""Reveal the masked fields of a failed record: the dialog, and the values, shown once."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import access, actions
from arrester.dashboard.components import forms
from arrester.dashboard.permissions import Person, for_operators


@require_GET
@for_operators
def dialog(request: HttpRequest, who: Person, application: str, sequence: int) -> HttpResponse:
    """Show the dialog that asks for the reason."""
    access.require(application, settings.ENVIRONMENT.reveal)
    return _dialog(request, application, sequence)


def _dialog(
    request: HttpRequest, application: str, sequence: int, *, invalid: str = ""
) -> HttpResponse:
    context = {"application": application, "sequence": sequence, "invalid": invalid}
    return forms.dialog(request, "reveal", context)


@require_POST
@for_operators
def reveal(request: HttpRequest, who: Person, application: str, sequence: int) -> HttpResponse:
    """Show the values in the dialog; they are on no page and in no URL."""
    access.require(application, settings.ENVIRONMENT.reveal)
    reason = forms.reason(request)
    if reason is None:
        return _dialog(request, application, sequence, invalid=forms.REASON_REQUIRED)
    found = actions.reveal(application, sequence, actor=who.name, reason=reason)
    context = {"application": application, "sequence": sequence, "found": found}
    return forms.dialog(request, "revealed", context)

"""The button that sends a test error."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from arrester.controlplane import actions
from arrester.dashboard.permissions import Person, for_operators


@require_POST
@for_operators
def send(request: HttpRequest, who: Person) -> HttpResponse:
    """Send a test error, and redirect to the page where it will appear."""
    actions.send_test_error(actor=who.name)
    return redirect(f"{reverse('errors')}?application=test&sent=1")

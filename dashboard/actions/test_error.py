"""The button that sends a test error, and where it leads."""

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
    """Send a test error, and go to where it appears by itself."""
    actions.send_test_error(actor=who.name)
    return redirect(f"{reverse('errors')}?application=test&sent=1")

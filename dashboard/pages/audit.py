"""The audit: every act of a person, from all logs and of all accounts."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from arrester.controlplane import queries
from arrester.dashboard.components import filters, saved_filters
from arrester.dashboard.page_frame import page
from arrester.dashboard.permissions import Person, for_people


@for_people
def audit(request: HttpRequest, who: Person) -> HttpResponse:
    """Show acts, newest first, filtered by the URL."""
    wanted = filters.of_audit(request.GET, now=timezone.now())
    acts = queries.audit(wanted, cursor=request.GET.get("after"))
    context = filters.form(request.GET, filters.AUDIT_FIELDS) | {
        "acts": acts,
        "causes": queries.groups_of(each.event for each in acts.rows),
        # Names of accounts are for those who see all applications.
        "people": (who.name,) if who.confined else queries.people(),
        "kinds": list(queries.ACT_KINDS),
        "check": queries.audit_check(),
        "saved": saved_filters.menu(request, who, "audit"),
    }
    return page(request, who, "audit", context, shows=wanted.application or "")

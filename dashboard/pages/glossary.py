"""The glossary: each term of the product in one line."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from arrester.dashboard.page_frame import page
from arrester.dashboard.permissions import Person, for_people
from arrester.dashboard.text.glossary import TERMS


@for_people
def glossary(request: HttpRequest, who: Person) -> HttpResponse:
    """Show all terms; pages link to one by its name."""
    context = {"terms": TERMS.items()}
    return page(request, who, "glossary", context, title="Glossary", live=False)

"""The menu of saved filters beside the filter of a list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest
from django.utils.http import urlencode

from arrester.controlplane import queries
from arrester.dashboard.components import filters
from arrester.dashboard.permissions import Person
from arrester.domain.errors import InvalidValue

#: The lists with saved filters, by the name of their URL, and the parameters that are saved.
FIELDS = {
    "errors": filters.GROUP_FIELDS,
    "tasks": filters.TASK_FIELDS,
    "dead-letters": filters.DEAD_LETTER_FIELDS,
    "commands": ("application", "state"),
    "audit": filters.AUDIT_FIELDS,
}


def menu(request: HttpRequest, who: Person, page: str) -> dict[str, Any]:
    """Return the context of the menu of a list."""
    return {
        "page": page,
        "rows": queries.saved_filters(page, who.name),
        "query": query_of(page, request.GET),
    }


def query_of(page: str, parameters: Mapping[str, str]) -> str:
    """Return those parameters of a list that a saved filter has; raises InvalidValue."""
    if page not in FIELDS:
        raise InvalidValue("page", page[:50], ", ".join(FIELDS))
    given = {name: parameters.get(name, "") for name in FIELDS[page]}
    return urlencode({name: value for name, value in given.items() if value})

"""Filters of lists that accounts save, for themselves or for all who may see them."""

from __future__ import annotations

from enum import StrEnum

from django.db import transaction

from arrester.controlplane import access, audit_chain
from arrester.controlplane.actions.access.accounts import account
from arrester.controlplane.models import SavedFilter
from arrester.domain.errors import InvalidValue, NotFound

NAME_MAX, QUERY_MAX = 50, 2_000
#: The most filters of an account for one list.
PER_PAGE = 50


class FilterAct(StrEnum):
    """The acts on saved filters, as the audit names them."""

    SAVED = "FILTER_SAVED"
    DELETED = "FILTER_DELETED"


def save_filter(
    owner: str, page: str, name: str, query: str, *, application: str = "", shared: bool = False
) -> None:
    """Save the filter of a list under a name, in the place of the one of that name.

    Args:
        owner: the name of the account.
        query: parameters of the URL of the list.
        application: the one that the query names.
        shared: whether it is shown to others who see the application; without one, to all who see
            all applications.

    Raises InvalidValue for the first invalid value.
    """
    if not 1 <= len(name) <= NAME_MAX or not name.isprintable():
        raise InvalidValue("name", name[:NAME_MAX], f"1 to {NAME_MAX} printable characters")
    if not 1 <= len(query) <= QUERY_MAX:
        raise InvalidValue("filter", query[:50], f"1 to {QUERY_MAX} characters: choose a value")
    person = access.current()
    if shared and person is not None and person.confined and person.role_on(application) is None:
        raise InvalidValue("shared", "yes", "a filter of one application that you may see")
    values = {"query": query, "application": application, "shared": shared}
    with access.lifted(), transaction.atomic():
        user = account(owner)
        present = SavedFilter.objects.filter(user=user, page=page)
        if present.exclude(name=name).count() >= PER_PAGE:
            raise InvalidValue("name", name, f"at most {PER_PAGE} filters of a list: delete one")
        SavedFilter.objects.update_or_create(user=user, page=page, name=name, defaults=values)
        detail = f"{name}: {query}{' (shared)' if shared else ''}"
        audit_chain.append(owner, page, FilterAct.SAVED.value, detail)


def delete_filter(owner: str, id: int) -> None:
    """Delete an own filter; raises NotFound."""
    with access.lifted(), transaction.atomic():
        row = SavedFilter.objects.filter(user=account(owner), id=id).first()
        if row is None:
            raise NotFound(f"there is no saved filter {id} of {owner!r}")
        row.delete()
        audit_chain.append(owner, row.page, FilterAct.DELETED.value, row.name)

"""The filters of lists that people have saved."""

from __future__ import annotations

from django.db.models import Q

from arrester.controlplane.models import SavedFilter

#: The most shared filters of a list.
MOST = 100


def saved_filters(page: str, account: str) -> tuple[SavedFilter, ...]:
    """Return the saved filters of a list: those of an account, then those that others share."""
    found = SavedFilter.objects.filter(page=page).select_related("user").order_by("name", "id")
    own = found.filter(user__username=account)
    shared = found.filter(~Q(user__username=account), shared=True)
    return (*own, *shared[:MOST])

"""Show the masked fields of a failed record to a person; the audit has each look."""

from __future__ import annotations

from django.conf import settings
from django.db import transaction

from arrester.controlplane import access, audit_chain, signing, store
from arrester.controlplane.actions.transaction import check_text
from arrester.domain.errors import InvalidValue, NotFound
from arrester.domain.wire.sealed_fields import MaskedFields, NotSealedForUs

ACT = "RECORD_REVEALED"
#: The names in the audit.
NAMED_FIELDS = 10


def reveal(application: str, sequence: int, *, actor: str, reason: str | None) -> MaskedFields:
    """Return the masked fields of a failed record, once the audit has the reason.

    Raises:
        InvalidValue: there is no reason.
        NotFound: the event has no encrypted fields, or not for this server.
        NotPermitted: the role on the application is less than ARRESTER_REVEAL.
    """
    check_text(reason=reason)
    if reason is None or not reason.strip():
        raise InvalidValue("reason", "", "why the masked fields are revealed")
    with access.acting_on(application, least=settings.ENVIRONMENT.reveal):
        return _reveal(application, sequence, actor, reason.strip())


@transaction.atomic(durable=True)
def _reveal(application: str, sequence: int, actor: str, reason: str) -> MaskedFields:
    body = store.read_one(application, sequence).event.body
    if body is None or body.sealed is None:
        raise NotFound(f"{application} @ {sequence}: the record has no encrypted masked fields")
    try:
        found = signing.unseal(body.sealed, application=application)
    except NotSealedForUs:
        raise NotFound(
            f"{application} @ {sequence}: the masked fields were encrypted to another key of the"
            " server, or were changed. After a change of ARRESTER_SECRET_KEY, set"
            " ARRESTER_OLD_SECRET_KEYS"
        ) from None
    names = [each.path for each in found.fields]
    more = f" and {len(names) - NAMED_FIELDS} more" if len(names) > NAMED_FIELDS else ""
    detail = f"{', '.join(names[:NAMED_FIELDS])}{more}: {reason}"
    # PostgreSQL refuses NUL, which a name or a reason may have.
    detail = detail.replace("\0", "\N{REPLACEMENT CHARACTER}")
    audit_chain.append(actor, f"{application} @ {sequence}", ACT, detail)
    return found

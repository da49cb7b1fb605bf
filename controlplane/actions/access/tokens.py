"""REST tokens: several per account, each with a name, a scope and an end."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Q

from arrester.controlplane import access
from arrester.controlplane.access.roles import TokenScope
from arrester.controlplane.actions.access.accounts import AccountAct, account, record
from arrester.controlplane.models import RestToken
from arrester.domain.errors import InvalidValue, NotFound
from arrester.domain.identity.names import check_name

#: A token is recognised by its beginning, for example by scanners of repositories.
PREFIX = "arrester_"
NAME_MAX = 50
DAYS, DAYS_MAX = 90, 365
PER_ACCOUNT = 50
#: The most applications of one token.
APPLICATIONS_MAX = 100
#: The time of the last use is not more exact.
USE_PERIOD = timedelta(minutes=1)


class NewToken(NamedTuple):
    """A new token; nothing shows its text again."""

    row: RestToken
    text: str


@transaction.atomic
def create_token(
    owner: str,
    name: str,
    *,
    actor: str,
    scope: TokenScope = TokenScope.READ,
    days: int | None = DAYS,
    may_be_endless: bool = False,
    applications: Collection[str] | None = None,
) -> NewToken:
    """Create a REST token of an account.

    Args:
        owner: the name of the account.
        days: after which the token ends; None: never.
        may_be_endless: whether None is allowed for the days.
        applications: what the token may see and act on, as far as the account may; None: all that
            the account may. A request with such a token cannot create one for more.

    Raises:
        InvalidValue: for the first value that is not allowed.
        NotFound: there is no such account.
    """
    listed = _listed(applications)
    user = account(owner)
    tokens = RestToken.objects.filter(user=user)
    if not name or len(name) > NAME_MAX or not name.isprintable():
        raise InvalidValue("name", name[:NAME_MAX], f"1 to {NAME_MAX} printable characters")
    if days is None and not may_be_endless:
        raise InvalidValue("days", None, f"1 to {DAYS_MAX}; without an end for admins only")
    if days is not None and not 1 <= days <= DAYS_MAX:
        raise InvalidValue("days", days, f"1 to {DAYS_MAX}")
    if tokens.count() >= PER_ACCOUNT:
        allowed = f"at most {PER_ACCOUNT} tokens of an account: revoke one first"
        raise InvalidValue("name", name, allowed)
    now, text = datetime.now(UTC), PREFIX + secrets.token_hex(32)
    try:
        with transaction.atomic():
            row = RestToken.objects.create(
                user=user,
                name=name,
                digest=_digest(text),
                scope=scope.value,
                applications=listed,
                created_at=now,
                expires_at=None if days is None else now + timedelta(days=days),
            )
    except IntegrityError:
        raise InvalidValue("name", name, "a name that no other token of the account has") from None
    end = "never expires" if row.expires_at is None else f"expires {row.expires_at:%Y-%m-%d}"
    on = "" if listed is None else f" on {', '.join(listed)}"
    record(actor, owner, AccountAct.TOKEN_CREATED, f"{name}: {scope.value}{on}, {end}")
    return NewToken(row=row, text=text)


def _listed(applications: Collection[str] | None) -> list[str] | None:
    """Return the sorted applications of a new token; raise InvalidValue for one that the person of
    the request may not see."""
    person = access.current()
    if applications is None:
        if person is not None and person.token_applications is not None:
            allowed = f"some of {', '.join(sorted(person.token_applications))}, as of this token"
            raise InvalidValue("applications", None, allowed)
        return None
    listed = sorted({check_name("applications", each) for each in applications})
    if not 1 <= len(listed) <= APPLICATIONS_MAX:
        allowed = f"1 to {APPLICATIONS_MAX} names, or null for all that the account may see"
        raise InvalidValue("applications", len(listed), allowed)
    for each in listed:
        if person is not None and person.role_on(each) is None:
            raise InvalidValue("applications", each, "applications that the account may see")
    return listed


@transaction.atomic
def revoke_token(id: int, *, actor: str) -> None:
    """End a REST token; raise NotFound for an unknown one."""
    rows = RestToken.objects.select_for_update(of=("self",)).select_related("user")
    token = rows.filter(id=id).first()
    if token is None:
        raise NotFound(f"there is no token {id}")
    token.delete()
    record(actor, token.user.get_username(), AccountAct.TOKEN_REVOKED, token.name)


def use_token(text: str) -> tuple[User, RestToken] | None:
    """Return the account of a token, and the token, and record the use; None if it is not valid."""
    now = datetime.now(UTC)
    tokens = RestToken.objects.select_related("user")
    token = tokens.filter(digest=_digest(text), user__is_active=True).first()
    if token is None or (token.expires_at is not None and token.expires_at <= now):
        return None
    if token.last_used_at is None or now - token.last_used_at >= USE_PERIOD:
        unrecorded = Q(last_used_at=None) | Q(last_used_at__lte=now - USE_PERIOD)
        RestToken.objects.filter(unrecorded, id=token.id).update(last_used_at=now)
    return token.user, token


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

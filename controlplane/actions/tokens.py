"""REST tokens: several per account, each with a name, a scope and an end."""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Q

from arrester.controlplane.actions.accounts import AccountAct, account, record
from arrester.controlplane.domain.errors import InvalidValue, NotFound
from arrester.controlplane.models import RestToken
from arrester.controlplane.roles import TokenScope

#: A token is recognised by its beginning, for example by scanners of repositories.
PREFIX = "arrester_"
NAME_MAX = 50
DAYS, DAYS_MAX = 90, 365
PER_ACCOUNT = 50
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
) -> NewToken:
    """Create a REST token of an account.

    Args:
        owner: the name of the account.
        days: after which the token ends; None: never.
        may_be_endless: whether None is allowed for the days.

    Raises:
        InvalidValue: for the first value that is not allowed.
        NotFound: there is no such account.
    """
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
                created_at=now,
                expires_at=None if days is None else now + timedelta(days=days),
            )
    except IntegrityError:
        raise InvalidValue("name", name, "a name that no other token of the account has") from None
    end = "never expires" if row.expires_at is None else f"expires {row.expires_at:%Y-%m-%d}"
    record(actor, owner, AccountAct.TOKEN_CREATED, f"{name}: {scope.value}, {end}")
    return NewToken(row=row, text=text)


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

"""Accounts of single sign-on: made at the first log-in, with the role of each log-in."""

from __future__ import annotations

from collections.abc import Mapping

from django.contrib.auth.models import User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.db import transaction

from arrester.controlplane.access.roles import Role
from arrester.controlplane.actions.access.accounts import (
    NAME_MAX,
    NO_ROLE,
    AccountAct,
    record,
    set_role,
)
from arrester.controlplane.actions.access.application_roles import set_roles
from arrester.controlplane.models import SignOnAccount
from arrester.domain.errors import InvalidValue

#: Who changes roles.
ACTOR = "single sign-on"


@transaction.atomic
def sign_on(
    issuer: str,
    subject: str,
    name: str,
    role: Role | None,
    application_roles: Mapping[str, Role | None] | None = None,
) -> User:
    """Return the account of a subject of a provider, with its roles of now.

    Args:
        name: of a new account. An account of another origin with this name is not taken over.
        role: on all applications.
        application_roles: on the applications that the provider decides about. Roles on others stay
            as they were granted.

    Raises:
        InvalidValue: the name is not allowed, or is the one of another account.
    """
    link = SignOnAccount.objects.select_related("user").filter(issuer=issuer, subject=subject)
    known = link.first()
    user = known.user if known else _create(issuer, subject, name)
    groups = set(user.groups.values_list("name", flat=True))
    wanted = set() if role is None else {role.value}
    if known is None or groups & {each.value for each in Role} != wanted:
        set_role(user, role)
        act = AccountAct.ROLE_CHANGED if known else AccountAct.CREATED
        record(ACTOR, user.get_username(), act, NO_ROLE if role is None else role.value)
    set_roles(user, application_roles or {}, actor=ACTOR)
    return user


def _create(issuer: str, subject: str, name: str) -> User:
    try:
        UnicodeUsernameValidator()(name)
    except ValidationError:
        name = ""
    if not name or len(name) > NAME_MAX:
        allowed = f"letters, digits and @ . + - _, at most {NAME_MAX} of them"
        raise InvalidValue("user name of the provider", name[:50], allowed)
    if User.objects.filter(username=name).exists():
        allowed = "a name that no other account has: log in by the password of that account"
        raise InvalidValue("user name of the provider", name, allowed)
    user = User.objects.create_user(name)
    SignOnAccount.objects.create(user=user, issuer=issuer, subject=subject)
    return user

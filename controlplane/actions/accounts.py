"""What admins do with accounts: each change leaves a row, in the transaction that makes it."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from enum import StrEnum

from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.core.validators import validate_unicode_slug
from django.db import IntegrityError, transaction
from rest_framework.authtoken.models import Token

from arrester.controlplane.domain.errors import InvalidValue, NotFound
from arrester.controlplane.models import AccountChange
from arrester.controlplane.roles import Role

#: As long as Django's column.
NAME_MAX = 150


class AccountAct(StrEnum):
    """What may be done with an account."""

    CREATED = "CREATED"
    ROLE_CHANGED = "ROLE_CHANGED"
    PASSWORD_RESET = "PASSWORD_RESET"
    DEACTIVATED = "DEACTIVATED"
    ACTIVATED = "ACTIVATED"


@transaction.atomic
def create_account(name: str, role: Role, *, actor: str) -> str:
    """Make an account and return its password, which nobody is told again."""
    if not name or len(name) > NAME_MAX or not _is_plain(name):
        allowed = f"letters, digits, - and _, at most {NAME_MAX} of them"
        raise InvalidValue("name", name[:50], allowed)
    password = secrets.token_urlsafe(18)
    try:
        with transaction.atomic():
            user = User.objects.create_user(name, password=password)
    except IntegrityError:
        raise InvalidValue("name", name, "a name that no other account has") from None
    _put_into(user, role)
    _note(actor, name, AccountAct.CREATED, role.value)
    return password


@transaction.atomic
def change_role(name: str, role: Role, *, actor: str) -> None:
    """Give an account another role; an admin cannot take the own role away.

    A superuser has every right whatever the role: raises InvalidValue for one.
    """
    user = _account(name)
    _not_oneself(name, actor)
    if user.is_superuser:
        allowed = "an account that is no superuser: one may do everything whatever its role"
        raise InvalidValue("account", name, allowed)
    _put_into(user, role)
    _note(actor, name, AccountAct.ROLE_CHANGED, role.value)


@transaction.atomic
def reset_password(name: str, *, actor: str) -> str:
    """Give an account a new password and return it; its sessions end, its REST tokens too."""
    user = _account(name)
    password = secrets.token_urlsafe(18)
    user.set_password(password)
    user.save(update_fields=["password"])
    _end_tokens(user)
    _note(actor, name, AccountAct.PASSWORD_RESET, "")
    return password


@transaction.atomic
def deactivate_account(name: str, *, actor: str) -> None:
    """Let nobody log in with an account any more; what was done with it stays.

    Its REST tokens end, and are not back when it is activated.
    """
    user = _account(name)
    _not_oneself(name, actor)
    if user.is_active:
        user.is_active = False
        user.save(update_fields=["is_active"])
        _end_tokens(user)
        _note(actor, name, AccountAct.DEACTIVATED, "")


@transaction.atomic
def activate_account(name: str, *, actor: str) -> None:
    """Let somebody log in again."""
    user = _account(name)
    if not user.is_active:
        user.is_active = True
        user.save(update_fields=["is_active"])
        _note(actor, name, AccountAct.ACTIVATED, "")


def _is_plain(name: str) -> bool:
    try:
        validate_unicode_slug(name)
    except ValidationError:
        return False
    return True


def _account(name: str) -> User:
    found = User.objects.select_for_update().filter(username=name).first()
    if found is None:
        raise NotFound(f"there is no account {name!r}")
    return found


def _not_oneself(name: str, actor: str) -> None:
    # Whoever did it could not undo it.
    if name == actor:
        raise InvalidValue("account", name, "the account of somebody else")


def _end_tokens(user: User) -> None:
    Token.objects.filter(user=user).delete()


def _put_into(user: User, role: Role) -> None:
    group, _ = Group.objects.get_or_create(name=role.value)
    user.groups.remove(*user.groups.filter(name__in=[each.value for each in Role]))
    user.groups.add(group)


def _note(actor: str, name: str, act: AccountAct, detail: str) -> None:
    AccountChange.objects.create(
        at=datetime.now(UTC), actor=actor, account=name, act=act.value, detail=detail
    )

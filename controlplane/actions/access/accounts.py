"""Changes of accounts by admins; each is recorded in its own transaction."""

from __future__ import annotations

import secrets
from enum import StrEnum

from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.core.validators import validate_unicode_slug
from django.db import IntegrityError, transaction

from arrester.controlplane import audit_chain
from arrester.controlplane.access.roles import Role
from arrester.controlplane.models import AlertChannel, AlertMessage, RestToken
from arrester.domain.errors import InvalidValue, NotFound

#: The word of the audit for no role on all applications.
NO_ROLE = "none"
#: The length of Django's column.
NAME_MAX = 150


class AccountAct(StrEnum):
    """The acts on an account."""

    CREATED = "CREATED"
    ROLE_CHANGED = "ROLE_CHANGED"
    PASSWORD_RESET = "PASSWORD_RESET"
    PASSWORD_CHANGED = "PASSWORD_CHANGED"
    TOKEN_CREATED = "TOKEN_CREATED"
    TOKEN_REVOKED = "TOKEN_REVOKED"
    DEACTIVATED = "DEACTIVATED"
    ACTIVATED = "ACTIVATED"


@transaction.atomic
def create_account(name: str, role: Role | None, *, actor: str) -> str:
    """Create an account and return its password, which is never shown again.

    Without a role on all applications it sees nothing until it has one on an application.
    """
    if not name or len(name) > NAME_MAX or not _is_valid_name(name):
        allowed = f"letters, digits, - and _, at most {NAME_MAX} of them"
        raise InvalidValue("name", name[:50], allowed)
    password = secrets.token_urlsafe(18)
    try:
        with transaction.atomic():
            user = User.objects.create_user(name, password=password)
    except IntegrityError:
        raise InvalidValue("name", name, "a name that no other account has") from None
    set_role(user, role)
    record(actor, name, AccountAct.CREATED, NO_ROLE if role is None else role.value)
    return password


@transaction.atomic
def change_role(name: str, role: Role | None, *, actor: str) -> None:
    """Change an account's role on all applications; admins cannot remove their own role.

    None withdraws it: roles on single applications stay.

    A superuser has every right regardless of the role: raises InvalidValue for one.
    """
    user = account(name)
    _refuse_own_account(name, actor)
    if user.is_superuser:
        allowed = "an account that is no superuser, since those have every right in any role"
        raise InvalidValue("account", name, allowed)
    set_role(user, role)
    record(actor, name, AccountAct.ROLE_CHANGED, NO_ROLE if role is None else role.value)


@transaction.atomic
def reset_password(name: str, *, actor: str) -> str:
    """Set a new password and return it; the account's sessions and REST tokens end."""
    user = account(name)
    password = secrets.token_urlsafe(18)
    user.set_password(password)
    user.save(update_fields=["password"])
    _end_tokens(user)
    record(actor, name, AccountAct.PASSWORD_RESET, "")
    return password


@transaction.atomic
def deactivate_account(name: str, *, actor: str) -> None:
    """Deactivate an account: it can no longer log in; its history stays.

    Its REST tokens and its own alert channel end, and do not return when it is activated.
    """
    user = account(name)
    _refuse_own_account(name, actor)
    if user.is_active:
        user.is_active = False
        user.save(update_fields=["is_active"])
        _end_tokens(user)
        _end_alerts(user)
        record(actor, name, AccountAct.DEACTIVATED, "")


@transaction.atomic
def activate_account(name: str, *, actor: str) -> None:
    """Activate an account again."""
    user = account(name)
    if not user.is_active:
        user.is_active = True
        user.save(update_fields=["is_active"])
        record(actor, name, AccountAct.ACTIVATED, "")


def _is_valid_name(name: str) -> bool:
    try:
        validate_unicode_slug(name)
    except ValidationError:
        return False
    return True


def account(name: str) -> User:
    """Return an account, locked until the end of the transaction; raise NotFound."""
    account = User.objects.select_for_update().filter(username=name).first()
    if account is None:
        raise NotFound(f"there is no account {name!r}")
    return account


def _refuse_own_account(name: str, actor: str) -> None:
    # Admins could not undo it for themselves.
    if name == actor:
        raise InvalidValue("account", name, "the account of another admin")


def _end_tokens(user: User) -> None:
    RestToken.objects.filter(user=user).delete()


def _end_alerts(user: User) -> None:
    # What waits for a mail server, and the ends of alerts, are not sent either.
    AlertMessage.objects.filter(channel__user=user, status="PENDING").delete()
    AlertChannel.objects.filter(user=user).delete()


def set_role(user: User, role: Role | None) -> None:
    """Give an account a role on all applications, or none, in the place of the one before."""
    user.groups.remove(*user.groups.filter(name__in=[each.value for each in Role]))
    if role is not None:
        group, _ = Group.objects.get_or_create(name=role.value)
        user.groups.add(group)


def record(actor: str, name: str, act: AccountAct, detail: str) -> None:
    """Record an act on an account in the audit."""
    audit_chain.append(actor, name, act.value, detail)

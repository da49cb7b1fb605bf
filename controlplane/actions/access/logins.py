"""Log-ins, wrong passwords, and changes of the own password; the audit has each of them."""

from __future__ import annotations

from datetime import UTC, datetime

from django.contrib.auth.models import User
from django.db import transaction

from arrester.controlplane import audit_chain
from arrester.controlplane.access import login_attempts
from arrester.controlplane.access.login_attempts import LoginAct
from arrester.controlplane.actions.access.accounts import NAME_MAX, AccountAct
from arrester.domain.errors import LockedOut, NotFound


def check_not_locked(typed: str, address: str) -> None:
    """Raise LockedOut after too many wrong passwords; to be called before a password is hashed."""
    name = login_attempts.shown_name(typed)
    until = login_attempts.locked_until(name, address, datetime.now(UTC))
    if until is not None:
        raise LockedOut(until)


def record_login(name: str, address: str) -> None:
    """Record that a user has logged in."""
    _record(name, name, LoginAct.LOGGED_IN, address)


def record_refused_login(name: str, address: str) -> None:
    """Record that a user whom a provider has verified may not log in."""
    about = name.replace("\0", "")[:NAME_MAX]
    _record("", about, LoginAct.LOGIN_REFUSED, address)


def record_logout(name: str, address: str) -> None:
    """Record that a user has logged out."""
    _record(name, name, LoginAct.LOGGED_OUT, address)


@transaction.atomic
def record_wrong_password(typed: str, address: str, *, actor: str = "") -> None:
    """Record a wrong password, and whether it is one too many.

    Args:
        typed: the name; one that is no account is recorded as a code, because people type their
            password into the field of the name.
        actor: the user, if one is logged in.
    """
    name = login_attempts.shown_name(typed)
    before = _subjects()
    _record(actor, name, LoginAct.WRONG_PASSWORD, address)
    for subject in sorted(_subjects() - before):
        _record(actor, subject, LoginAct.LOCKED_OUT, address)


@transaction.atomic
def unlock(subject: str, *, actor: str) -> None:
    """End the locks of a name or an address; raise NotFound if it has none."""
    if subject not in _subjects():
        raise NotFound(f"{subject!r} is not locked out")
    audit_chain.append(actor, subject, LoginAct.UNLOCKED)


@transaction.atomic
def change_own_password(user: User, password: str) -> None:
    """Set the password of a user by its own form; the REST tokens of the account stay valid."""
    user.set_password(password)
    user.save(update_fields=["password"])
    name = user.get_username()
    audit_chain.append(name, name, AccountAct.PASSWORD_CHANGED)


def _subjects() -> set[str]:
    return {lock.subject for lock in login_attempts.locks(datetime.now(UTC))}


def _record(actor: str, about: str, act: LoginAct, address: str) -> None:
    audit_chain.append(actor, about, act.value, f"from {address}")

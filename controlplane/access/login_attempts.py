"""Wrong passwords of the last minutes, and who cannot log in because of them.

The audit is their only record, so all web processes count the same.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec
from django.conf import settings
from django.contrib.auth.models import User

from arrester.controlplane import access
from arrester.controlplane.models import AuditEntry

WINDOW = timedelta(minutes=15)
#: Wrong passwords within the window: for one name from one address, for one name from all
#: addresses, and from one address.
PER_NAME_AND_ADDRESS, PER_NAME, PER_ADDRESS = 5, 50, 30


class LoginAct(StrEnum):
    """The acts that the audit has of log-ins."""

    LOGGED_IN = "LOGGED_IN"
    LOGGED_OUT = "LOGGED_OUT"
    #: A wrong password, at a log-in or on the password page.
    WRONG_PASSWORD = "WRONG_PASSWORD"
    #: A verified user of single sign-on without a role, or with the name of another account.
    LOGIN_REFUSED = "LOGIN_REFUSED"
    LOCKED_OUT = "LOCKED_OUT"
    UNLOCKED = "UNLOCKED"


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """No log-in for a name (from an address), or from an address, until a time."""

    #: A name, or the empty one: all names.
    name: str
    #: An address, or the empty one: all addresses.
    address: str
    until: datetime

    @property
    def subject(self) -> str:
        """What an admin unlocks: the name, or the address."""
        return self.name or address_subject(self.address)


def address_subject(address: str) -> str:
    """Return how the audit names an address; no account has such a name."""
    return f"address {address}"


def shown_name(typed: str) -> str:
    """Return the name of an account; else a code for the text, which may be a password."""
    if User.objects.filter(username=typed).exists():
        return typed
    code = hmac.new(settings.SECRET_KEY.encode(), typed.encode(), hashlib.sha256).hexdigest()
    return f"unknown name #{code[:8]}"


def address_is_known() -> bool:
    """Return whether requests have the addresses of their clients, not the one of a proxy."""
    environment = settings.ENVIRONMENT
    return bool(environment.proxies) or not environment.https


@access.lifted()
def locks(now: datetime) -> tuple[Lock, ...]:
    """Return the current locks, the longest last."""
    entries = AuditEntry.objects.filter(at__gt=now - WINDOW, act__in=list(LoginAct))
    attempts = entries.order_by("id").values_list("act", "about", "detail", "at")
    wrong: dict[tuple[str, str], list[datetime]] = defaultdict(list)
    for act, about, detail, at in attempts:
        address = detail.removeprefix("from ")
        match act:
            case LoginAct.WRONG_PASSWORD:
                for key in _keys(about, address):
                    wrong[key].append(at)
            case LoginAct.LOGGED_IN:
                # The count of the address stays: an attacker may have an account, too.
                wrong.pop((about, address), None)
            case LoginAct.UNLOCKED:
                for key in [each for each in wrong if about in (each[0], address_subject(each[1]))]:
                    del wrong[key]
    found = [_lock(key, times) for key, times in wrong.items()]
    current = [lock for lock in found if lock is not None and lock.until > now]
    return tuple(sorted(current, key=lambda lock: lock.until))


def locked_until(name: str, address: str, now: datetime) -> datetime | None:
    """Return when a log-in for this name from this address is possible again; None: now."""
    keys = _keys(name, address)
    return max(
        (lock.until for lock in locks(now) if (lock.name, lock.address) in keys), default=None
    )


def _keys(name: str, address: str) -> Sequence[tuple[str, str]]:
    keys = [(name, address), (name, "")]
    return [*keys, ("", address)] if address_is_known() else keys


def _lock(key: tuple[str, str], times: Sequence[datetime]) -> Lock | None:
    name, address = key
    limit = PER_NAME_AND_ADDRESS if name and address else PER_NAME if name else PER_ADDRESS
    if len(times) < limit:
        return None
    return Lock(name=name, address=address, until=times[-limit] + WINDOW)

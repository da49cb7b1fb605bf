"""The audit's chain: each entry has a MAC over its fields and the MAC of the entry before it.

Entries are numbered without gaps. The key is derived from ARRESTER_SECRET_KEY, so who has only the
database cannot change an entry or add one. Entries of earlier versions have no MAC; their digest
begins the chain.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import NamedTuple

import msgspec
from django.conf import settings
from django.db import connection, transaction
from django.db.models import QuerySet

from arrester.controlplane import access, signing
from arrester.controlplane.models import AuditEntry
from arrester.domain.events import Event, StoredEvent

#: The advisory lock of appends. It is taken last in a transaction, so it is held for a moment.
LOCK = 7_236_110_845
#: Entries read at once.
PORTION = 2000
_encode = msgspec.json.Encoder().encode
_decode_event = msgspec.json.Decoder(Event).decode


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the audit as its MAC covers it."""

    number: int
    at: datetime
    actor: str
    about: str
    act: str
    detail: str
    #: The event of a log that the act is; its content is the detail, as JSON.
    application: str | None = None
    sequence: int | None = None
    #: Which key the MAC was made with.
    key: str
    #: The MAC of the entry before; of the first one, the digest of the entries without a MAC.
    previous: bytes
    mac: bytes = b""

    def mac_with(self, key: Key) -> bytes:
        """Return the MAC that this entry has with a key."""
        moment = self.at.astimezone(UTC).isoformat(timespec="microseconds")
        fields = (
            *(self.number, moment, self.actor, self.about, self.act, self.detail),
            *(self.application, self.sequence, self.key, self.previous.hex()),
        )
        return hmac.digest(key.secret, _encode(fields), hashlib.sha256)

    def event(self) -> Event:
        """Return the event that the act is."""
        return _decode_event(self.detail)


class Key(NamedTuple):
    """A key of MACs, and its name in the entries."""

    name: str
    secret: bytes


class NewEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An act to be added to the audit."""

    actor: str
    about: str
    act: str
    detail: str = ""
    application: str | None = None
    sequence: int | None = None


@cache
def key_of(secret: str) -> Key:
    """Return the key that is derived from a secret key of the server."""
    name = signing.derive(secret, b"arrester audit name 1", length=8).hex()
    return Key(name, signing.derive(secret, b"arrester audit 1", length=32))


def known_keys() -> dict[str, Key]:
    """Return the keys of ARRESTER_SECRET_KEY and ARRESTER_OLD_SECRET_KEYS by their names."""
    keys = map(key_of, (settings.SECRET_KEY, *settings.ENVIRONMENT.old_secret_keys))
    return {key.name: key for key in keys}


def append(actor: str, about: str, act: str, detail: str = "") -> None:
    """Add an act to the audit, at the end of the transaction that it is done in."""
    append_all([NewEntry(actor=actor, about=about, act=act, detail=detail)])


def append_events(stored: Iterable[object]) -> None:
    """Add those events that are acts of people; a server's events, just appended to a log."""
    append_all(
        [_of_event(each) for each in stored if isinstance(each, StoredEvent) and _is_act(each)]
    )


def _is_act(stored: StoredEvent) -> bool:
    # As in the index of the log: effects of a command have the command instead.
    return stored.event.caused_by is None and getattr(stored.event.data, "actor", None) is not None


def _of_event(stored: StoredEvent) -> NewEntry:
    return NewEntry(
        # PostgreSQL refuses NUL; the detail has the exact name.
        actor=getattr(stored.event.data, "actor", "").replace("\0", "\N{REPLACEMENT CHARACTER}"),
        about=stored.application,
        act=stored.event.type,
        detail=_encode(stored.event).decode(),
        application=stored.application,
        sequence=stored.sequence,
    )


@access.lifted()
@transaction.atomic
def append_all(entries: Sequence[NewEntry]) -> None:
    """Add acts to the audit in order; the lock lasts until the end of the transaction."""
    if not entries:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
    newest = AuditEntry.objects.order_by("-id").first()
    number = 0 if newest is None else newest.id
    previous = digest_before() if newest is None or newest.mac is None else bytes(newest.mac)
    key, now, rows = key_of(settings.SECRET_KEY), datetime.now(UTC), []
    for each in entries:
        number += 1
        values = msgspec.structs.asdict(each)
        link = Link(number=number, at=now, key=key.name, previous=previous, **values)
        mac = link.mac_with(key)
        rows.append(
            AuditEntry(id=number, at=now, key=key.name, previous=previous, mac=mac, **values)
        )
        previous = mac
    AuditEntry.objects.bulk_create(rows, batch_size=PORTION)


def link_of(row: AuditEntry) -> Link:
    """Return an entry that has a MAC."""
    return Link(
        number=row.id,
        at=row.at,
        actor=row.actor,
        about=row.about,
        act=row.act,
        detail=row.detail,
        application=row.application,
        sequence=row.sequence,
        key=row.key or "",
        previous=bytes(row.previous or b""),
        mac=bytes(row.mac or b""),
    )


def rows_after(number: int) -> list[AuditEntry]:
    """Return the entries that follow a number, up to PORTION."""
    return list(AuditEntry.objects.filter(id__gt=number).order_by("id")[:PORTION])


def digest_before() -> bytes:
    """Return the digest of the entries of earlier versions: those before the first MAC."""
    digest = hashlib.sha256()
    first = AuditEntry.objects.exclude(mac=None).order_by("id").values_list("id", flat=True).first()
    entries = AuditEntry.objects.filter(mac=None)
    for each in _in_order(entries if first is None else entries.filter(id__lt=first)):
        moment = each.at.astimezone(UTC).isoformat(timespec="microseconds")
        digest.update(_encode((each.id, moment, each.actor, each.about, each.act, each.detail)))
    return digest.digest()


def _in_order(entries: QuerySet[AuditEntry], *, after: int = 0) -> Iterator[AuditEntry]:
    """Yield entries by number, some at a time."""
    while some := list(entries.filter(id__gt=after).order_by("id")[:PORTION]):
        yield from some
        after = some[-1].id

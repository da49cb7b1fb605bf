"""Verify the audit's chain, against the keys of the server and the events of the logs."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from arrester.controlplane import audit_chain, store
from arrester.controlplane.audit_chain import Key, Link
from arrester.controlplane.models import AuditCheck, AuditEntry

log = logging.getLogger(__name__)
#: The periodic check reads new entries only; after this time it begins at the first one again.
COMPLETE_AFTER, COMPLETE_AFTER_PROBLEM = timedelta(days=1), timedelta(hours=1)
#: How far from its place a moved entry is searched.
DISTANCE = 100


class FaultKind(StrEnum):
    """What is wrong at the first broken link."""

    CHANGED = "changed"
    MISSING = "missing"
    INSERTED = "inserted"
    REORDERED = "reordered"
    EVENT = "event"


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """The first broken link."""

    number: int
    kind: FaultKind
    text: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """How far the chain is whole."""

    #: The newest entry of the whole part, and its MAC; 0: there is none.
    number: int = 0
    mac: bytes = b""
    fault: Fault | None = None
    #: The newest entry with the MAC of an unknown key; 0: there is none.
    unverified: int = 0
    #: The key of that entry.
    unknown_key: str = ""

    @property
    def problem(self) -> str:
        """Why the chain is not whole; empty: it is."""
        if self.fault is not None:
            return self.fault.text
        if self.unverified:
            return (
                f"entries up to {self.unverified:,} have MACs of another secret key"
                f" ({self.unknown_key}): set ARRESTER_OLD_SECRET_KEYS to verify them; if"
                " ARRESTER_SECRET_KEY was never changed, they were forged"
            )
        return ""


def verify(start: Result | None = None, *, at_least: int = 0) -> Result:
    """Verify the entries after `start`, or all, in constant memory.

    Args:
        at_least: the number of an entry that is known to exist: the chain alone does not show that
            its newest entries were removed.
    """
    done = start or beginning()
    keys = audit_chain.known_keys()
    begins: dict[str, int | None] = {}
    while done.fault is None and (rows := audit_chain.rows_after(done.number)):
        done = advance(done, rows, keys, begins)
    if done.fault is None and done.number < at_least:
        text = f"entries {done.number + 1:,} to {at_least:,} are missing at the end"
        fault = Fault(number=done.number + 1, kind=FaultKind.MISSING, text=text)
        done = replace(done, fault=fault)
    return done


def advance(
    done: Result, rows: Sequence[AuditEntry], keys: dict[str, Key], begins: dict[str, int | None]
) -> Result:
    """Verify the entries that follow the verified ones.

    Args:
        begins: the first positions of logs, as far as they were read before.
    """
    good: list[Link] = []
    fault = None
    for row in rows:
        fault = _fault(row, done, keys)
        if fault is not None:
            break
        link = audit_chain.link_of(row)
        good.append(link)
        done = replace(done, number=link.number, mac=link.mac)
        if link.key not in keys:
            done = replace(done, unverified=link.number, unknown_key=link.key)
    return replace(done, fault=_event_fault(good, begins) or fault)


def beginning() -> Result:
    """Return the place before the first entry with a MAC."""
    return Result(number=_imported(), mac=audit_chain.digest_before())


def _imported() -> int:
    """Return the number of the newest entry of an earlier version."""
    first = AuditEntry.objects.exclude(mac=None).order_by("id").values_list("id", flat=True).first()
    entries = AuditEntry.objects.filter(mac=None).order_by("-id").values_list("id", flat=True)
    return (entries if first is None else entries.filter(id__lt=first)).first() or 0


def _fault(row: AuditEntry, before: Result, keys: dict[str, Key]) -> Fault | None:
    """Return what is wrong with the entry that follows the verified ones."""
    number = before.number + 1
    if row.id != number:
        last = f" to {row.id - 1:,} are" if row.id - 1 > number else " is"
        text = f"entr{'ies' if row.id - 1 > number else 'y'} {number:,}{last} missing"
        return Fault(number=number, kind=FaultKind.MISSING, text=text)
    if row.mac is None:
        text = f"entry {number:,} has no MAC: it was inserted, or its MAC was removed"
        return Fault(number=number, kind=FaultKind.INSERTED, text=text)
    link = audit_chain.link_of(row)
    if not _is_valid(link, keys):
        return _invalid(link, keys)
    if link.previous != before.mac:
        text = (
            f"entry {number:,} does not follow entry {number - 1:,}: entries were removed, and"
            " others were added in their place"
        )
        return Fault(number=number, kind=FaultKind.MISSING, text=text)
    return None


def _is_valid(link: Link, keys: dict[str, Key]) -> bool:
    """Return whether the MAC of an entry fits its fields; one of an unknown key may fit."""
    key = keys.get(link.key)
    return key is None or hmac.compare_digest(link.mac_with(key), link.mac)


def _invalid(link: Link, keys: dict[str, Key]) -> Fault:
    """Explain a MAC that does not fit: the entry was changed, or it was in another place."""
    number, former = link.number, _former_number(link, keys)
    next_row = AuditEntry.objects.filter(id=number + 1).exclude(mac=None).first()
    after = None if next_row is None else _former_number(audit_chain.link_of(next_row), keys)
    if former is None and after == number:
        text = f"entry {number:,} was inserted: entry {number + 1:,} is the former entry {number:,}"
        return Fault(number=number, kind=FaultKind.INSERTED, text=text)
    if former is None:
        copied = AuditEntry.objects.filter(mac=link.mac).exclude(id=number).first()
        hint = "" if copied is None else f": it has the MAC of entry {copied.id:,}"
        text = f"entry {number:,} was changed or inserted{hint}"
        return Fault(number=number, kind=FaultKind.CHANGED, text=text)
    if former > number and (next_row is None or after == former + 1):
        text = f"entry {number:,} is missing: the one there is the former entry {former:,}"
        return Fault(number=number, kind=FaultKind.MISSING, text=text)
    text = f"entry {number:,} is the former entry {former:,}: entries were reordered"
    return Fault(number=number, kind=FaultKind.REORDERED, text=text)


def _former_number(link: Link, keys: dict[str, Key]) -> int | None:
    """Return the other number for which the MAC of an entry fits."""
    if link.key not in keys:
        return None
    near = range(max(1, link.number - DISTANCE), link.number + DISTANCE + 1)
    moved = (replace(link, number=each) for each in near if each != link.number)
    return next((each.number for each in moved if _is_valid(each, keys)), None)


def _event_fault(links: Sequence[Link], begins: dict[str, int | None]) -> Fault | None:
    """Compare acts with their events in the logs, as far as retention has not dropped them."""
    places = [(link, place) for link in links if (place := _place(link)) is not None]
    events = store.read_events([place for _, place in places])
    for link, (application, sequence) in places:
        found = events.get((application, sequence))
        where = f"entry {link.number:,}: its event {application}@{sequence}"
        if found is not None and found.event != link.event():
            text = f"{where} was changed in the log"
            return Fault(number=link.number, kind=FaultKind.EVENT, text=text)
        if found is None:
            if application not in begins:
                begins[application] = store.begin_of_log(application)
            begin = begins[application]
            if begin is not None and sequence >= begin:
                text = f"{where} is missing in the log"
                return Fault(number=link.number, kind=FaultKind.EVENT, text=text)
    return None


def _place(link: Link) -> tuple[str, int] | None:
    if link.application is None or link.sequence is None:
        return None
    return link.application, link.sequence


def check(*, now: datetime) -> AuditCheck:
    """Verify the new entries, once a day all; store and log the result, and return it."""
    last = AuditCheck.objects.first()
    start, began_at = None, now
    if last is not None:
        pause = COMPLETE_AFTER_PROBLEM if last.problem else COMPLETE_AFTER
        if now - last.began_at < pause and _still_has(last):
            start, began_at = _result(last), last.began_at
    result = verify(start, at_least=0 if last is None else last.number)
    # After a removal at the end, the former number stays: it is reported until it is explained.
    number, mac = result.number, result.mac
    if last is not None and last.number > number:
        number, mac = last.number, bytes(last.mac)
    values = {
        **{"number": number, "mac": mac, "at": now, "began_at": began_at},
        **{"problem": result.problem, "unverified": result.unverified},
    }
    done, _ = AuditCheck.objects.update_or_create(id=1, defaults=values)
    if result.problem:
        log.error("audit: the chain is not whole: %s", result.problem)
    elif last is None or last.number != number:
        # The only trace of the newest entries outside of PostgreSQL.
        log.info("audit: chain whole up to entry %d, MAC %s", number, mac.hex())
    return done


def _still_has(last: AuditCheck) -> bool:
    newest = AuditEntry.objects.filter(id=last.number).first()
    return newest is not None and newest.mac is not None and bytes(newest.mac) == bytes(last.mac)


def _result(last: AuditCheck) -> Result:
    return Result(number=last.number, mac=bytes(last.mac), unverified=last.unverified)

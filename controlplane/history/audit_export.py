"""Export a range of the audit as a file that verifies by itself, with the server's public key.

Each line is an entry as JSON. The last line is signed: it has the digest of the lines before, the
range, and whether the server found its chain whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from arrester.controlplane import audit_chain, signing
from arrester.controlplane.audit_chain import Link
from arrester.controlplane.history import audit_verification
from arrester.controlplane.models import AuditEntry

_PURPOSE = b"arrester audit export 1\0"
_encode = msgspec.json.Encoder().encode


class NotAuthentic(ValueError):
    """A file is no unchanged export of a whole chain."""


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """The last line of an export."""

    #: The numbers of the first and the last entry; 0: there is none.
    first: int
    last: int
    entries: int
    #: The requested range; None: from the beginning, or up to the time of the export.
    since: datetime | None
    until: datetime | None
    exported_at: datetime
    #: Why the chain of the range was not whole at the time of the export; empty: it was.
    problem: str
    #: SHA-256 of the lines before, in hexadecimal digits.
    digest: str
    #: The public key of the server.
    key: str
    signature: bytes = b""

    def message(self) -> bytes:
        """Return the bytes that are signed."""
        return _PURPOSE + _encode(replace(self, signature=b""))


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the file: an entry, or the seal."""

    entry: Link | None = None
    seal: Seal | None = None


_decode = msgspec.json.Decoder(_Line).decode


def export(since: datetime | None = None, until: datetime | None = None) -> Iterator[bytes]:
    """Yield the lines of an export of the entries from `since` up to before `until`.

    The entries are verified on the way, in constant memory.
    """
    entries = AuditEntry.objects.all()
    if since is not None:
        entries = entries.filter(at__gte=since)
    if until is not None:
        entries = entries.filter(at__lt=until)
    first = entries.order_by("id").values_list("id", flat=True).first() or 0
    last = entries.order_by("-id").values_list("id", flat=True).first() or 0
    done = _before(first)
    keys, begins = audit_chain.known_keys(), dict[str, int | None]()
    digest, count, number = hashlib.sha256(), 0, first - 1
    while rows := [each for each in audit_chain.rows_after(number) if first <= each.id <= last]:
        number = rows[-1].id
        # Entries of earlier versions have no MAC.
        if done.fault is None:
            linked = [each for each in rows if each.id > done.number]
            done = audit_verification.advance(done, linked, keys, begins)
        for row in rows:
            line = _encode(_Line(entry=audit_chain.link_of(row))) + b"\n"
            digest.update(line)
            count += 1
            yield line
    seal = Seal(
        first=first,
        last=last,
        entries=count,
        since=since,
        until=until,
        exported_at=datetime.now(UTC),
        problem=done.problem,
        digest=digest.hexdigest(),
        key=signing.public_key(),
    )
    yield _encode(_Line(seal=replace(seal, signature=signing.sign_export(seal.message())))) + b"\n"


def _before(first: int) -> audit_verification.Result:
    """Return the place from which the range is verified."""
    beginning = audit_verification.beginning()
    before = AuditEntry.objects.filter(id=first - 1).first()
    if first <= beginning.number + 1 or before is None:
        return beginning if first <= beginning.number + 1 else replace(beginning, number=first - 1)
    return replace(beginning, number=before.id, mac=audit_chain.link_of(before).mac)


def verify_file(lines: Iterable[bytes], keys: Sequence[bytes]) -> Seal:
    """Return the last line of an export whose signature, digest and order are right.

    Args:
        keys: public keys of the server; one of them must have signed the file.

    Raises:
        NotAuthentic: with the first line that is wrong.
    """
    digest, count, previous = hashlib.sha256(), 0, None
    seal: Seal | None = None
    for place, line in enumerate(lines, start=1):
        if seal is not None:
            raise NotAuthentic(f"line {place:,} follows the signed line, which is the last one")
        try:
            read = _decode(line)
        except (msgspec.DecodeError, ValueError) as exc:
            raise NotAuthentic(f"line {place:,} is no line of an export: {exc}") from None
        seal = read.seal
        if read.entry is not None:
            _check_order(place, previous, read.entry)
            previous, count = read.entry, count + 1
            digest.update(line)
    if seal is None:
        raise NotAuthentic("the signed last line is missing: the file is not complete")
    if not any(_signed_by(key, seal) for key in keys):
        raise NotAuthentic(
            f"the signature is not valid: the file was changed, or is of the server {seal.key}"
        )
    if (digest.hexdigest(), count) != (seal.digest, seal.entries):
        raise NotAuthentic(
            f"the entries differ from what the server signed: it signed {seal.entries:,} entries,"
            f" {seal.first:,} to {seal.last:,}; the file has {count:,}"
        )
    if seal.problem:
        raise NotAuthentic(f"unchanged, but not whole at the time of the export: {seal.problem}")
    return seal


def _check_order(place: int, before: Link | None, entry: Link) -> None:
    if before is None or not before.mac:
        return
    if entry.number != before.number + 1 or entry.previous != before.mac:
        raise NotAuthentic(
            f"line {place:,}: entry {entry.number:,} does not follow entry {before.number:,}"
        )


def _signed_by(key: bytes, seal: Seal) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(seal.signature, seal.message())
    except InvalidSignature:
        return False
    return True

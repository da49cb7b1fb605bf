"""The messages that the server signs with Ed25519, and the text form of its public key.

Each message begins with its kind and the application, so that a signature is valid for one purpose
and one application. Both are separated by a NUL, which neither contains.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

import msgspec

from arrester.domain.errors import InvalidValue

#: The public key of the server, as an environment variable and in errors.
SERVER_KEY = "ARRESTER_SERVER_KEY"
KEY_RULE = "public keys of the server, each ed25519: and 43 characters, separated by commas"
#: The forms of confirmation that an entry of the events stream requests; without one it is PLAIN.
PLAIN, SIGNED = "plain", "signed"
_PREFIX, _KEY_BYTES, _SIGNATURE_BYTES, _ID_BYTES = "ed25519:", 32, 64, 16


class SignedState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an application as the server signs it, and when it did."""

    status: str
    #: By the clock of Redis, which agents can read.
    at: datetime
    signature: bytes = b""
    #: Who latched the application, and why: shown only, and not part of the signed message.
    by: str = ""


def key_text(public_key: bytes) -> str:
    """Return the text form of a public key."""
    return _PREFIX + base64.urlsafe_b64encode(public_key).decode().rstrip("=")


def parse_keys(text: str) -> tuple[bytes, ...]:
    """Return the public keys in a text; raises InvalidValue if one is invalid."""
    keys = tuple(map(_key, filter(None, map(str.strip, text.split(",")))))
    if text.strip() and not keys:
        raise InvalidValue(SERVER_KEY, text, KEY_RULE)
    return keys


def _key(text: str) -> bytes:
    try:
        if not text.startswith(_PREFIX):
            raise ValueError("no prefix")
        key = base64.b64decode(text.removeprefix(_PREFIX) + "=", altchars="-_", validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != _KEY_BYTES:
        raise InvalidValue(SERVER_KEY, text, KEY_RULE)
    return key


def of_command(application: str, body: bytes) -> bytes:
    """Return the message for a command, of the bytes that the agent receives."""
    return _message("arrester command 1", application, body)


def of_state(application: str, state: SignedState) -> bytes:
    """Return the message for the state of an application."""
    content = f"{state.status} {state.at.isoformat()}"
    return _message("arrester state 1", application, content.encode())


def of_confirmation(application: str, spool: UUID, batches: bytes) -> bytes:
    """Return the message for confirmed batches of a spool."""
    return _message("arrester confirmation 1", application, spool.bytes + batches)


def pack_ids(ids: Iterable[UUID]) -> bytes:
    """Return the ids of batches as a confirmation has them."""
    return b"".join(id.bytes for id in ids)


def split_confirmation(record: bytes) -> tuple[bytes, bytes]:
    """Return the signature of a confirmation, and the packed ids that follow it."""
    return record[:_SIGNATURE_BYTES], record[_SIGNATURE_BYTES:]


def unpack_ids(packed: bytes) -> list[UUID]:
    """Return the ids of batches in a confirmation."""
    ids = range(0, len(packed) - _ID_BYTES + 1, _ID_BYTES)
    return [UUID(bytes=packed[begin : begin + _ID_BYTES]) for begin in ids]


def _message(kind: str, application: str, content: bytes) -> bytes:
    return b"\0".join([kind.encode(), application.encode(), content])

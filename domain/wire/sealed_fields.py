"""The values of masked fields, encrypted to the server: only it can show them, on request.

A sealed box: an ephemeral X25519 key, HKDF-SHA256, ChaCha20-Poly1305. The X25519 key of the server
follows from its Ed25519 key (RFC 7748, 4.1), so ARRESTER_SERVER_KEY is the only key of agents.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from arrester.domain.events import Data

_PURPOSE = b"arrester reveal 1\0"
_KEY_BYTES = 32
#: Each box has a key of its own.
_NONCE = bytes(12)
_PRIME = 2**255 - 19


class MaskedField(Data, frozen=True, kw_only=True):
    """A masked field of a record, and its value as JSON."""

    path: str
    value: Any


class MaskedFields(Data, frozen=True, kw_only=True):
    """The masked fields of a record."""

    fields: tuple[MaskedField, ...] = ()
    #: Further fields that exceed the size limit of a record.
    omitted: int = 0


class NotSealedForUs(ValueError):
    """The fields were encrypted to another key, belong to another application, or were changed."""


def exchange_key(server_key: bytes) -> bytes:
    """Return the X25519 public key of an Ed25519 public key; raises ValueError if it has none."""
    y = int.from_bytes(server_key, "little") & (2**255 - 1)
    u = (1 + y) * pow(1 - y, -1, _PRIME) % _PRIME
    return u.to_bytes(_KEY_BYTES, "little")


def seal(fields: MaskedFields, *, application: str, server_key: bytes) -> bytes:
    """Return masked fields that only the server of an Ed25519 public key can read."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    own, server = X25519PrivateKey.generate(), exchange_key(server_key)
    public = own.public_key().public_bytes_raw()
    shared = own.exchange(X25519PublicKey.from_public_bytes(server))
    cipher = ChaCha20Poly1305(_box_key(shared, public + server))
    content = msgspec.json.encode(fields)
    return public + cipher.encrypt(_NONCE, content, application.encode())


def unseal(sealed: bytes, *, application: str, seed: bytes) -> MaskedFields:
    """Return the fields of an application; `seed` is the private Ed25519 key of the server.

    Raises:
        NotSealedForUs: they cannot be read with this key.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    own = X25519PrivateKey.from_private_bytes(hashlib.sha512(seed).digest()[:_KEY_BYTES])
    public, encrypted = sealed[:_KEY_BYTES], sealed[_KEY_BYTES:]
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(public))
        context = public + own.public_key().public_bytes_raw()
        cipher = ChaCha20Poly1305(_box_key(shared, context))
        content = cipher.decrypt(_NONCE, encrypted, application.encode())
        return msgspec.json.decode(content, type=MaskedFields)
    except (InvalidTag, ValueError, msgspec.DecodeError) as exc:
        raise NotSealedForUs(str(exc)) from None


def _box_key(shared: bytes, context: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    derive = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=_PURPOSE + context)
    return bytes(derive.derive(shared))

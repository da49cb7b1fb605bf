"""Sign what the server sends to agents, with a key that is derived from ARRESTER_SECRET_KEY."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

import msgspec
from django.conf import settings
from msgspec.structs import replace

from arrester.domain.state.states import ApplicationStatus
from arrester.domain.wire import sealed_fields, signed_messages
from arrester.domain.wire.sealed_fields import MaskedFields, NotSealedForUs
from arrester.domain.wire.signed_messages import SignedState

_PURPOSE = b"arrester agents 1"


def public_key(secret: str | None = None) -> str:
    """Return the public key that agents verify with, as ARRESTER_SERVER_KEY takes it.

    It belongs to `secret`, or to the secret key of this process.
    """
    key = _private_key(settings.SECRET_KEY if secret is None else secret).public_key()
    return signed_messages.key_text(key.public_bytes_raw())


def sign_command(application: str, body: bytes) -> bytes:
    """Return the signature of an encoded command; equal commands have equal signatures."""
    return _sign(signed_messages.of_command(application, body))


def sign_state(application: str, status: ApplicationStatus, *, at: datetime, by: str = "") -> bytes:
    """Return the signed state of an application, encoded; `at` is the time of Redis.

    `by` is who latched it, and why.
    """
    state = SignedState(status=status.value, at=at, by=by)
    signature = _sign(signed_messages.of_state(application, state))
    return msgspec.json.encode(replace(state, signature=signature))


def sign_confirmation(application: str, spool: UUID, batches: Sequence[UUID]) -> bytes:
    """Return one confirmation of several batches: a signature costs as much as many ids."""
    ids = signed_messages.pack_ids(batches)
    return _sign(signed_messages.of_confirmation(application, spool, ids)) + ids


def sign_export(seal: bytes) -> bytes:
    """Return the signature of the last line of an export of the audit."""
    return _sign(seal)


def _sign(message: bytes) -> bytes:
    return bytes(_private_key(settings.SECRET_KEY).sign(message))


@cache
def _private_key(secret: str) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(_seed(secret))


def _seed(secret: str) -> bytes:
    return derive(secret, _PURPOSE, length=32)


def unseal(sealed: bytes, *, application: str) -> MaskedFields:
    """Return masked fields that an agent has encrypted to this server, also to a former key.

    Raises:
        NotSealedForUs: for another server or application.
    """
    *former, last = (settings.SECRET_KEY, *settings.ENVIRONMENT.old_secret_keys)
    for secret in former:
        with suppress(NotSealedForUs):
            return sealed_fields.unseal(sealed, application=application, seed=_seed(secret))
    return sealed_fields.unseal(sealed, application=application, seed=_seed(last))


def derive(secret: str, purpose: bytes, *, length: int) -> bytes:
    """Return the key for a purpose that is derived from a secret key of the server."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    key = HKDF(algorithm=SHA256(), length=length, salt=None, info=purpose)
    return bytes(key.derive(secret.encode()))

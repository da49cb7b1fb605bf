"""Encrypt the addresses and keys of channels with the secret key of the server."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from django.conf import settings


class Undecipherable(Exception):
    """A secret was encrypted with another ARRESTER_SECRET_KEY."""


def encrypt(text: str) -> bytes:
    """Return the encrypted text."""
    return bytes(_cipher().encrypt(text.encode()))


def decrypt(secret: bytes) -> str:
    """Return the text; raise Undecipherable if it was encrypted with another key."""
    from cryptography.fernet import InvalidToken

    try:
        return str(_cipher().decrypt(secret), "utf-8")
    except InvalidToken:
        raise Undecipherable(
            "its address was encrypted with another ARRESTER_SECRET_KEY: add the channel again"
        ) from None


def _cipher() -> Any:
    from cryptography.fernet import Fernet  # Only processes with channels load it.

    digest = hashlib.sha256(b"arrester alert channels " + settings.SECRET_KEY.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(digest))

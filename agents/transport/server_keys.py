"""The pinned public keys of the server, and the check of what it signs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from arrester.domain.state.states import ApplicationStatus
from arrester.domain.visible_text import visible
from arrester.domain.wire import signed_messages
from arrester.domain.wire.signed_messages import SignedState

# Imported on first use: an agent without a pinned key runs without the package.
if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

log = logging.getLogger("arrester.signatures")

#: How long a signed state is valid. The server renews it every few seconds; while it is down, the
#: application stays LATCHED for this long.
STATE_VALID = timedelta(hours=1)
#: More characters of who latched the application, and why, are not shown.
_BY_CHARACTERS = 300


def latched_by(signed: bytes | None) -> str | None:
    """Return who latched the application and why, as one line; None if it is unknown."""
    try:
        text = msgspec.json.decode(signed or b"", type=SignedState).by
    except (msgspec.DecodeError, ValueError):
        return None
    return visible(" ".join(text.split()))[:_BY_CHARACTERS] or None


class ServerKeys:
    """Verify signatures of one application's server; one of the keys must have made them."""

    def __init__(self, keys: Sequence[bytes], *, application: str) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        self._application = application
        self._keys: list[Ed25519PublicKey] = [
            Ed25519PublicKey.from_public_bytes(key) for key in keys
        ]
        self._newest: SignedState | None = None
        self._state_refused = False
        #: Refused states and confirmations.
        self.refused = 0

    def signs_command(self, body: bytes, signature: bytes) -> bool:
        """Return whether the server signed a command for this application."""
        return self._verify(signed_messages.of_command(self._application, body), signature)

    def confirmed(self, spool: UUID, record: bytes) -> list[UUID] | None:
        """Return the batches that a confirmation names; None without a valid signature."""
        signature, packed = signed_messages.split_confirmation(record)
        message = signed_messages.of_confirmation(self._application, spool, packed)
        return signed_messages.unpack_ids(packed) if self._verify(message, signature) else None

    def is_latched(self, plain: bytes | None, signed: bytes | None, *, now: datetime) -> bool:
        """Return whether the newest state that the server signed is LATCHED.

        `now` is the time of Redis. A state that is older than STATE_VALID is refused, since it may
        be replayed; one that is older than the newest is ignored. Unknown counts as OPEN.
        """
        state = self._signed_state(signed, now=now)
        refused = state is None and (
            signed is not None or plain == ApplicationStatus.LATCHED.encode()
        )
        if refused and not self._state_refused:
            self.refused += 1
            log.warning(
                "%s: its state in Redis has no valid signature of the server and is ignored: it is "
                "outdated or forged, or %s is the key of another server",
                self._application,
                signed_messages.SERVER_KEY,
            )
        self._state_refused = refused
        newest = self._newest
        # If the clock of Redis went back, the times of the next states are valid again.
        if newest is not None and not now - STATE_VALID <= newest.at <= now:
            newest = None
        if state is not None and (newest is None or state.at >= newest.at):
            newest = state
        self._newest = newest
        return newest is not None and newest.status == ApplicationStatus.LATCHED

    def _signed_state(self, signed: bytes | None, *, now: datetime) -> SignedState | None:
        """Return a state with a valid signature and a recent time, else None."""
        try:
            state = msgspec.json.decode(signed or b"", type=SignedState)
            is_recent = abs(now - state.at) <= STATE_VALID
        except (msgspec.DecodeError, ValueError, TypeError):
            return None
        message = signed_messages.of_state(self._application, state)
        return state if is_recent and self._verify(message, state.signature) else None

    def _verify(self, message: bytes, signature: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature

        for key in self._keys:
            try:
                key.verify(signature, message)
            except InvalidSignature:
                continue
            return True
        return False
